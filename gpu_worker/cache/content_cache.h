// Immutable bytes that a tenant uploaded, found again by what they are:
// XXH3-128 and length, computed by this worker from what it received.
//
// Contents are shared by holding the same buffer; a writer clones first. A
// content that no storage shares is kept until the ledger needs its room, least
// recently used first. Nothing is ever replaced, and nothing crosses tenants:
// within a tenant, hash and length decide, so each key has one buffer.
//
// Thread-safe.
#ifndef GPU_WORKER_CACHE_CONTENT_CACHE_H_
#define GPU_WORKER_CACHE_CONTENT_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/hash.h"
#include "common/mutex.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

class ContentCache {
 public:
  struct Content {
    std::string tenant;
    ContentHash hash;
    uint64_t size_bytes = 0;
  };
  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t evictions = 0;
    // Bytes that no storage shares.
    uint64_t idle_bytes = 0;
  };

  // At most `max_contents` are remembered; more are not kept when none is idle.
  explicit ContentCache(size_t max_contents) : max_contents_(max_contents) {}

  // Null when the tenant has no such content. Counts a hit or a miss.
  std::shared_ptr<Buffer> Find(const std::string& tenant,
                               const ContentHash& hash, uint64_t size_bytes);

  // Keeps `buffer`, whose bytes have this hash and must not change any more.
  // Returns the buffer to use: an equal one that is already here, if any.
  std::shared_ptr<Buffer> Insert(const std::string& tenant,
                                 const ContentHash& hash,
                                 std::shared_ptr<Buffer> buffer);

  // Forgets idle contents until `bytes` are free or none is left.
  void EvictIdle(uint64_t bytes);

  std::vector<Content> List() const;
  Stats stats() const;
  // Grows with every change of List().
  uint64_t revision() const;

 private:
  struct Entry {
    Content content;
    std::shared_ptr<Buffer> buffer;
  };
  using Order = std::list<Entry>;
  using Key = std::tuple<std::string, ContentHash, uint64_t>;

  void Evict(uint64_t bytes, size_t count, Order* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_contents_;
  mutable Mutex mu_;
  // Most recently used first.
  Order order_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Key, Order::iterator> contents_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_CACHE_CONTENT_CACHE_H_
