// Keeps contents: immutable bytes that tenants uploaded, by the hash
// (common/hash/hash.h) and length that this worker computed from the bytes it
// received.
//
// Storages share a content by holding its buffer, and a writer clones the
// buffer first. Within a tenant, hash and length identify a content. Across
// tenants they are only a hint: Adopt() gives a content to another tenant once
// that tenant has proved that it has the bytes, and only if both tenants share
// contents (SetSharing()). The cache never replaces a content, so contents of
// several tenants may have the same hash and length and different bytes.
//
// A content that no storage shares is idle, and stays until its memory is
// needed. Then the tenant with the most idle bytes gives up one content, so no
// tenant loses a content to others while it holds no more than its share. A
// content of several tenants counts in full for each, and is evicted when no
// tenant has it any more. A tenant gives up its least valuable content first,
// by GreedyDual-Size-Frequency: each use sets a content's value to a floor plus
// uses times cost per byte, where the cost is the time that the bytes took to
// arrive, and the floor rises to the value of each evicted content.
//
// Thread-safe.
#ifndef GPU_WORKER_STORE_CONTENT_CACHE_H_
#define GPU_WORKER_STORE_CONTENT_CACHE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"
#include "common/metrics/duration_histogram.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

class ContentCache {
 public:
  // A tenant's right to a content.
  struct Content {
    std::string tenant;
    ContentHash hash;
    uint64_t size_bytes = 0;
  };
  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t evictions = 0;
    // Hits on another tenant's content, after a proof.
    uint64_t adoptions = 0;
    // Contents in the cache now; one that tenants share counts once.
    uint64_t entries = 0;
    uint64_t bytes = 0;
    // Bytes that no storage shares.
    uint64_t idle_bytes = 0;
  };

  // Keeps at most `max_contents`, of which one tenant sent at most half. When
  // the cache is full, the tenant that sent the most gives up an idle content;
  // the cache does not keep a new content when none is idle. A content that its
  // sender gives up counts as sent by another tenant that shares it, if there
  // is one. `clock` must outlive the cache.
  explicit ContentCache(size_t max_contents, Clock* clock = Clock::Real())
      : max_contents_(max_contents), clock_(clock) {}

  // Returns null when the tenant has no such content. Counts a hit or a miss.
  std::shared_ptr<Buffer> Find(const std::string& tenant,
                               const ContentHash& hash, uint64_t size_bytes);

  // Keeps `buffer`, whose bytes have this hash and must not change any more;
  // `cost` is the time that it took to get them. Returns the buffer to use: an
  // equal one that the tenant has already, if any.
  std::shared_ptr<Buffer> Insert(const std::string& tenant,
                                 const ContentHash& hash,
                                 std::shared_ptr<Buffer> buffer,
                                 absl::Duration cost);

  // Sets which tenants share contents with one another.
  void SetSharing(absl::flat_hash_set<std::string> tenants);
  bool Shares(const std::string& tenant) const;
  // Returns the first content that may be the bytes that the tenant means, of
  // tenants that share contents, if this tenant shares them too; null if there
  // is none. It is one at most, so that a proof takes no longer where there are
  // more. The content is not evicted while a caller holds its buffer. Counts no
  // hit or miss.
  std::shared_ptr<Buffer> FindShared(const std::string& tenant,
                                     const ContentHash& hash,
                                     uint64_t size_bytes) const;
  // Gives the tenant the content of `buffer`, which came from FindShared() and
  // whose bytes the tenant has proved to have. Turns the tenant's miss into a
  // hit.
  void Adopt(const std::string& tenant, const ContentHash& hash,
             const std::shared_ptr<Buffer>& buffer);

  // Returns the tenant's content, or null; counts no hit or miss. The disk
  // store uses it.
  std::shared_ptr<Buffer> Peek(const std::string& tenant,
                               const ContentHash& hash,
                               uint64_t size_bytes) const;
  // Returns the hashes of the tenant's contents, by their buffers. A buffer
  // stays valid only while a caller holds a reference.
  absl::flat_hash_map<const Buffer*, ContentHash> Names(
      const std::string& tenant) const;
  // Sets the time that it now takes to get the content of `buffer` again.
  void SetCost(const ContentHash& hash, const std::shared_ptr<Buffer>& buffer,
               absl::Duration cost);

  // Turns a miss of Find() into a hit: the content was elsewhere.
  void CountFound();

  // Evicts idle contents until `bytes` are free or no idle content is left.
  void EvictIdle(uint64_t bytes);
  // Evicts idle contents until at most `bytes` of them are left.
  void KeepIdle(uint64_t bytes);

  std::vector<Content> List() const;
  Stats stats() const;
  // Returns how long evicted contents had been unused: since they were
  // inserted, or found last.
  const DurationHistogram& idle_before_evict() const {
    return idle_before_evict_;
  }
  // Returns a number that grows with every change of List().
  uint64_t revision() const;

 private:
  struct Entry {
    ContentHash hash;
    std::shared_ptr<Buffer> buffer;
    // The tenants that have the content. The first one counts as its sender.
    std::vector<std::string> tenants;
    // Seconds.
    double cost_per_byte = 0;
    uint64_t uses = 0;
    // The key in order_: the content's value, and when it was used last.
    std::pair<double, uint64_t> place;
    absl::Duration used;
  };
  using Key = std::pair<ContentHash, uint64_t>;
  using Entries = std::vector<std::unique_ptr<Entry>>;
  using Evicted = std::vector<std::unique_ptr<Entry>>;

  static double PerByte(absl::Duration cost, const Buffer& buffer);
  Entry* Of(const std::string& tenant, const Key& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Entry* Of(const ContentHash& hash,
            const std::shared_ptr<Buffer>& buffer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Use(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Recomputes the entry's position in order_.
  void Place(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t IdleBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EvictIdleLocked(uint64_t bytes, Evicted* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Evicts the least valuable idle content that the tenant sent. Returns false
  // when there is none.
  bool EvictSentBy(const std::string& tenant, Evicted* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the idle entry away from the tenant, and evicts it when no tenant has
  // it any more.
  void LetGo(const std::string& tenant, Entry* entry, Evicted* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the entry, which no tenant has any more, out of the tables.
  void Remove(Entry* entry, Evicted* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountSent(const std::string& tenant, int by)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room for one more content of the tenant. Returns false when it
  // cannot.
  bool MakePlace(const std::string& tenant, Evicted* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_contents_;
  Clock* const clock_;
  DurationHistogram idle_before_evict_{absl::Seconds(1)};
  mutable Mutex mu_;
  absl::flat_hash_map<Key, Entries> contents_ ABSL_GUARDED_BY(mu_);
  // The entries in the order in which they are evicted.
  std::set<std::pair<std::pair<double, uint64_t>, Entry*>> order_
      ABSL_GUARDED_BY(mu_);
  double floor_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_use_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<std::string> sharing_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
  uint64_t revision_ ABSL_GUARDED_BY(mu_) = 0;
  // How many contents each tenant sent.
  absl::flat_hash_map<std::string, size_t> sent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_CONTENT_CACHE_H_
