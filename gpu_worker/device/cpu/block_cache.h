// Memory for tensors, kept for the next tensor of about the size.
//
// malloc gives large blocks back to the kernel as soon as they are free, and
// the kernel takes longer to find and clear a page than most operators take to
// fill it. As the caching allocators of GPUs (Paszke et al., NeurIPS'19, 5.3):
// blocks come in classes, eight for each power of two, and those that are free
// wait in a list of their class, the last to come being the first to go.
//
// What waits is bounded, and what nobody needed between two calls of
// ReleaseUnused() is given back. Blocks are not cleared. Thread-safe.
//
// Large blocks that stay, weights mostly, are moved to huge pages: products
// that stream them are done sooner. Not when they are first written: the
// kernel, or the machine below it, may take milliseconds to find one, which
// made uploads four times as long.
#ifndef GPU_WORKER_DEVICE_CPU_BLOCK_CACHE_H_
#define GPU_WORKER_DEVICE_CPU_BLOCK_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"

namespace djinn::worker {

class BlockCache {
 public:
  // Smaller ones are malloc's, which keeps them.
  static constexpr size_t kLeastBytes = size_t{64} << 10;
  // What a huge page has, and begins at a multiple of. On a processor that has
  // larger ones blocks keep their ordinary pages.
  static constexpr size_t kHugePage = size_t{2} << 20;

  // Moves memory that begins and ends with huge pages to such, if the kernel
  // has any. It may be somebody else's by then, or nobody's.
  using MoveToHugePages = void (*)(void* begin, size_t bytes);
  static void MoveByKernel(void* begin, size_t bytes);

  explicit BlockCache(MoveToHugePages move = &MoveByKernel) : move_(move) {}
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // What a block for so many bytes, kLeastBytes at least, really has.
  static size_t BlockBytes(size_t bytes);

  // A block of BlockBytes(bytes), aligned to a page, or to a huge page if it
  // has as much; null when the kernel has none.
  void* Take(size_t bytes);
  // Whether it is one that was taken; then how much it has, and it waits for
  // the next one if not more than `most_idle` do.
  size_t Return(void* block, uint64_t most_idle);

  // Gives back what waits beyond so many bytes, the largest first.
  void Shrink(uint64_t most_idle);
  // Gives back what nobody needed since the last call.
  void ReleaseUnused();
  // Moves blocks that were taken before the last call and not returned since to
  // huge pages: `most_bytes` of them, the rest the next time.
  void MoveLasting(size_t most_bytes);

  uint64_t idle_bytes() const;

 private:
  struct Class {
    std::vector<void*> idle;
    // Fewest since the last ReleaseUnused().
    size_t unused = 0;
  };

  // Of a block that has a huge page at least.
  struct Large {
    size_t bytes = 0;
    bool lasting = false;
    // From its beginning.
    size_t moved = 0;
  };

  void NoteTaken(void* block, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes `count` of the oldest out.
  void Remove(size_t bytes, size_t count, Class* of,
              std::vector<std::pair<void*, size_t>>* removed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const MoveToHugePages move_;
  mutable Mutex mu_;
  // By what their blocks have.
  std::map<size_t, Class> classes_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<void*, size_t> taken_ ABSL_GUARDED_BY(mu_);
  // Those of them that are large.
  absl::flat_hash_map<void*, Large> large_ ABSL_GUARDED_BY(mu_);
  uint64_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_BLOCK_CACHE_H_
