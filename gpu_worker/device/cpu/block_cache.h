// Keeps free memory of tensors for the next tensor of about the same size.
//
// malloc gives large blocks back to the kernel as soon as they are free, and
// the kernel takes longer to find and clear a page than most operators take to
// fill it. So the cache sorts blocks into classes, eight for each power of two,
// and keeps free blocks in a list of their class, as the caching allocators of
// GPUs do (Paszke et al., NeurIPS'19, 5.3). It reuses the most recently freed
// block first.
//
// The memory of idle blocks is bounded. ReleaseUnused() frees blocks that no
// tensor needed since the call before.
//
// Each block has an owner, whose bytes it holds, and goes back to its owner if
// that asks soon. The cache clears no block but tells whether another owner's
// bytes may be in it. Thread-safe.
#ifndef GPU_WORKER_DEVICE_CPU_BLOCK_CACHE_H_
#define GPU_WORKER_DEVICE_CPU_BLOCK_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"

namespace djinn::worker {

class BlockCache {
 public:
  // Smaller blocks are left to malloc, which keeps them.
  static constexpr size_t kLeastBytes = size_t{64} << 10;

  BlockCache() = default;
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // Returns the size of a block for `bytes`, which is at least kLeastBytes.
  static size_t BlockBytes(size_t bytes);

  // The owner of blocks whose bytes may be anybody's.
  static constexpr uint64_t kNobody = 0;

  struct Block {
    void* data = nullptr;
    // The bytes may be those of another owner than the taker.
    bool foreign = false;
  };
  // Returns a block of BlockBytes(bytes), aligned to a page, which then is
  // `owner`'s. Returns null when the kernel has no memory.
  Block Take(size_t bytes, uint64_t owner);
  // Frees a block and returns its size, or returns 0 for memory that is not a
  // taken block. Keeps the block for the next tensor unless more than
  // `most_idle` bytes would be idle.
  size_t Return(void* block, uint64_t most_idle);

  // Frees idle blocks beyond `most_idle` bytes, the largest first.
  void Shrink(uint64_t most_idle);
  // Frees the blocks that no tensor needed since the last call.
  void ReleaseUnused();

  uint64_t idle_bytes() const;

 private:
  struct Idle {
    void* data;
    uint64_t owner;
  };
  struct Taken {
    size_t bytes;
    uint64_t owner;
  };
  struct Class {
    std::vector<Idle> idle;
    // The fewest idle blocks since the last ReleaseUnused().
    size_t unused = 0;
  };

  // Removes the `count` oldest idle blocks.
  void Remove(size_t bytes, size_t count, Class* of,
              std::vector<std::pair<void*, size_t>>* removed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  // Classes by block size.
  std::map<size_t, Class> classes_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<void*, Taken> taken_ ABSL_GUARDED_BY(mu_);
  uint64_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_BLOCK_CACHE_H_
