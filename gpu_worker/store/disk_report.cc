#include "gpu_worker/store/disk_report.h"

namespace djinn::worker {

v1::DiskUse DescribeDisk(const ContentStore::Stats& stats) {
  v1::DiskUse disk;
  v1::CacheUse* const cache = disk.mutable_cache();
  cache->set_hits(stats.hits);
  cache->set_misses(stats.misses);
  cache->set_evictions(stats.evictions);
  cache->set_entries(stats.entries);
  cache->set_size_bytes(stats.bytes);
  disk.set_limit_bytes(stats.limit_bytes);
  disk.set_failed_writes(stats.failed_writes);
  disk.set_corrupt_files(stats.corrupt_files);
  disk.set_failure(stats.failure);
  return disk;
}

void CollectCache(const char* cache, uint64_t hits, uint64_t misses,
                  uint64_t evictions, Exposition* out) {
  const auto requests = [&](const char* result, uint64_t count) {
    out->Counter("djinn_cache_requests_total", "Look-ups in a cache.",
                 static_cast<double>(count),
                 {{"cache", cache}, {"result", result}});
  };
  requests("hit", hits);
  requests("miss", misses);
  out->Counter("djinn_cache_evictions_total",
               "Entries that a cache evicted to make room.",
               static_cast<double>(evictions), {{"cache", cache}});
}

void CollectDiskCache(const ContentStore::Stats& disk,
                      const std::string& worker, Exposition* out) {
  CollectCache("content_disk", disk.hits, disk.misses, disk.evictions, out);
  out->Gauge(
      "djinn_cache_bytes", "Bytes in a cache; an estimate for plans.",
      static_cast<double>(disk.bytes),
      {{"worker", worker}, {"cache", "content_disk"}, {"residency", "disk"}});
}

void CollectDisk(const ContentStore::Stats& disk, Exposition* out) {
  const auto failures = [&](const char* kind, uint64_t count) {
    out->Counter("djinn_content_disk_failures_total",
                 "Contents that could not be written to disk (kind=write), and "
                 "corrupt files found (kind=corrupt).",
                 static_cast<double>(count), {{"kind", kind}});
  };
  failures("write", disk.failed_writes);
  failures("corrupt", disk.corrupt_files);
  out->Gauge("djinn_content_disk_writable",
             "Whether the last content was kept on disk.",
             disk.failure.empty() ? 1 : 0);
}

}  // namespace djinn::worker
