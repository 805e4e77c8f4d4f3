// Reports how contents on disk are used, to the coordinator and as metrics.
#ifndef GPU_WORKER_STORE_DISK_REPORT_H_
#define GPU_WORKER_STORE_DISK_REPORT_H_

#include <cstdint>
#include <string>

#include "common/metrics/exposition.h"
#include "djinn/v1/usage.pb.h"
#include "gpu_worker/store/content_store.h"

namespace djinn::worker {

v1::DiskUse DescribeDisk(const ContentStore::Stats& stats);

// Adds the look-ups and evictions of the cache with this name.
void CollectCache(const char* cache, uint64_t hits, uint64_t misses,
                  uint64_t evictions, Exposition* out);
// Add the look-ups of the disk, among those of other caches, and how well it
// works.
void CollectDiskCache(const ContentStore::Stats& disk,
                      const std::string& worker, Exposition* out);
void CollectDisk(const ContentStore::Stats& disk, Exposition* out);

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_DISK_REPORT_H_
