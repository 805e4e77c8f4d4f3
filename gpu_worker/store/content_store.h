// Keeps a worker's contents outside of its own memory: on disk (disk_store.h),
// or, in an executor, at its supervisor (../supervisor/contents).
#ifndef GPU_WORKER_STORE_CONTENT_STORE_H_
#define GPU_WORKER_STORE_CONTENT_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/hash/hash.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/content_challenge.h"

namespace djinn::worker {

// A look for a content in a store. Thread-safe.
class ContentLoad {
 public:
  virtual ~ContentLoad() = default;
  // settled() says whether there is an outcome, and ok() whether the content
  // was found.
  virtual bool settled() const = 0;
  virtual bool ok() const = 0;
  // Gives up the load: it is not ok, unless it is settled already.
  virtual void GiveUp() = 0;
  // Returns the buffer that has the content, once the load is ok; null if it is
  // the request's.
  virtual std::shared_ptr<Buffer> Take() { return nullptr; }
  // Returns, once the load is settled and not ok, a challenge by which the
  // client may prove that it has another tenant's content; null if there is
  // none. The challenge calls the request's `settled` and `charge`.
  virtual std::shared_ptr<ContentChallenge> challenge() { return nullptr; }
};

struct ContentRequest {
  std::string tenant;
  ContentHash hash;
  // Receives the content; its size is the content's.
  std::shared_ptr<Buffer> buffer;
  // Called, from any thread and without locks, when there is an outcome.
  std::function<void()> settled;
  // Whether the client can prove that it has the bytes.
  bool provable = false;
  // Charges the session for the time that a proof took. May be null if not
  // `provable`.
  std::function<void(absl::Duration)> charge;
};

// Thread-safe.
class ContentStore {
 public:
  struct Stats {
    uint64_t entries = 0;
    uint64_t bytes = 0;
    uint64_t limit_bytes = 0;
    // Contents read in time for the request.
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t evictions = 0;
    uint64_t failed_writes = 0;
    uint64_t corrupt_files = 0;
    // The error of the last write; empty when it succeeded.
    std::string failure;
  };

  virtual ~ContentStore() = default;

  // Sets the device and the cache of the contents. Call it before anything
  // else; both must outlive this, or Stop().
  virtual void Bind(Device* device, ContentCache* contents) = 0;
  virtual void Start() = 0;
  // Ends the threads after the piece of a content that each is working on.
  // Loads under way fail.
  virtual void Stop() = 0;

  // Queues the tenant's content, which is in the cache, to be kept after a
  // while. The content is kept then if a storage still uses it, or if `found`
  // says that the cache found it again. Does nothing when the store has the
  // content, but counts a use of it if `found`.
  virtual void Keep(const std::string& tenant, const ContentHash& hash,
                    uint64_t size_bytes, bool found) = 0;
  // Returns false when Load() would find nothing; counts no hit or miss.
  virtual bool MayHave(const std::string& tenant, const ContentHash& hash,
                       uint64_t size_bytes) const = 0;
  // Returns null when the content is not here.
  virtual std::shared_ptr<ContentLoad> Load(ContentRequest request) = 0;

  // Returns the contents of this store. Empty if another process reports them.
  virtual std::vector<ContentCache::Content> List() const { return {}; }
  // Returns the counters of this store. Empty if another process reports them.
  virtual std::optional<Stats> stats() const { return std::nullopt; }
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_CONTENT_STORE_H_
