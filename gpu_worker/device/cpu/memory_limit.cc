#include "gpu_worker/device/cpu/memory_limit.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "c10/core/Allocator.h"
#include "c10/core/CPUAllocator.h"
#include "c10/core/impl/alloc_cpu.h"
#include "c10/util/Exception.h"
#include "gpu_worker/device/cpu/block_cache.h"

namespace djinn::worker {
namespace {

std::atomic<uint64_t> limit_bytes{UINT64_MAX};
std::atomic<uint64_t> used_bytes{0};

// False under the address sanitizer, which needs red zones around every tensor.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeepsBlocks = false;
#else
constexpr bool kKeepsBlocks = true;
#endif

BlockCache* Blocks() {
  static BlockCache* const blocks = new BlockCache;
  return blocks;
}

// Returns how many idle bytes may be kept in addition to those in use.
uint64_t MostIdle() {
  const uint64_t limit = limit_bytes.load(std::memory_order_relaxed);
  const uint64_t used = used_bytes.load(std::memory_order_relaxed);
  return std::min(limit / 4, limit - std::min(limit, used));
}

// Returns null if the system has no memory for the process.
void* Allocate(size_t size) {
  if (!kKeepsBlocks || size < BlockCache::kLeastBytes) {
    void* const data = c10::alloc_cpu(size);
    // Counts the size that malloc really gave, for which Free() can ask.
    if (data != nullptr) used_bytes += malloc_usable_size(data);
    return data;
  }
  void* const data = Blocks()->Take(size);
  if (data == nullptr) return nullptr;
  used_bytes += BlockCache::BlockBytes(size);
  Blocks()->Shrink(MostIdle());
  return data;
}

void Free(void* data) {
  if (data == nullptr) return;
  // Blocks are aligned to pages, so other addresses need no lookup.
  if (kKeepsBlocks && reinterpret_cast<uintptr_t>(data) % 4096 == 0) {
    if (const size_t size = Blocks()->Return(data, MostIdle()); size > 0) {
      used_bytes -= size;
      return;
    }
  }
  used_bytes -= malloc_usable_size(data);
  c10::free_cpu(data);
}

class LimitedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const uint64_t limit = limit_bytes.load(std::memory_order_relaxed);
    const uint64_t used = used_bytes.load(std::memory_order_relaxed);
    // Threads that pass this check at the same time may exceed the limit by the
    // sizes they ask for; later ones are refused.
    TORCH_CHECK_WITH(OutOfMemoryError, size <= limit && used <= limit - size,
                     "out of memory: limit ", limit, " bytes, used ", used,
                     ", asked ", size);
    void* const data = Allocate(size);
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr || size == 0,
                     "out of memory: the system has no ", size,
                     " bytes, though the limit is ", limit);
    return c10::DataPtr(data, data, &Free, c10::Device(c10::DeviceType::CPU));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* target, const void* source, size_t size) const override {
    default_copy_data(target, source, size);
  }
};

}  // namespace

void SetTensorMemoryLimit(uint64_t bytes) {
  limit_bytes.store(bytes, std::memory_order_relaxed);
  static const bool kInstalled = [] {
    c10::SetCPUAllocator(new LimitedAllocator, /*priority=*/1);
    return true;
  }();
  (void)kInstalled;
}

void TidyTensorMemory() { Blocks()->ReleaseUnused(); }

}  // namespace djinn::worker
