#include "gpu_worker/device/cpu/memory_limit.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "c10/core/Allocator.h"
#include "c10/core/CPUAllocator.h"
#include "c10/core/impl/alloc_cpu.h"
#include "c10/util/Exception.h"
#include "common/base/mutex.h"
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

std::atomic<bool> one_tenant_only{false};

// The tenant for which a thread allocates, and how much more it may.
struct Allocating {
  uint64_t owner = BlockCache::kNobody;
  int64_t room = std::numeric_limits<int64_t>::max();
  bool overwrites = false;
};
thread_local Allocating allocating;

// Returns a number for the tenant, never kNobody.
uint64_t OwnerId(const std::string& tenant) {
  // Most calls of a thread are for the tenant of the call before.
  thread_local std::pair<std::string, uint64_t> last;
  if (last.second != BlockCache::kNobody && last.first == tenant) {
    return last.second;
  }
  struct Ids {
    Mutex mu;
    absl::flat_hash_map<std::string, uint64_t> ids ABSL_GUARDED_BY(mu);
  };
  static Ids* const known = new Ids;
  MutexLock lock(&known->mu);
  const uint64_t next = known->ids.size() + 1;
  last = {tenant, known->ids.try_emplace(tenant, next).first->second};
  return last.second;
}

// Blocks and malloc's pieces are a little larger than what tensors ask for.
int64_t WithSlack(uint64_t bytes) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  const uint64_t bounded = std::min(bytes, kMost);
  return static_cast<int64_t>(bounded + bounded / 8 + BlockCache::kLeastBytes);
}

void Take(size_t bytes) {
  used_bytes += bytes;
  allocating.room -= static_cast<int64_t>(bytes);
}

void GiveBack(size_t bytes) {
  used_bytes -= bytes;
  // Threads without a limit free what others allocated.
  if (allocating.room < std::numeric_limits<int64_t>::max() / 2) {
    allocating.room += static_cast<int64_t>(bytes);
  }
}

bool Clears() {
  return !allocating.overwrites &&
         !one_tenant_only.load(std::memory_order_relaxed);
}

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
    if (data == nullptr) return nullptr;
    // Counts the size that malloc really gave, for which Free() can ask.
    Take(malloc_usable_size(data));
    if (Clears()) std::memset(data, 0, size);
    return data;
  }
  const auto [data, foreign] = Blocks()->Take(
      size, allocating.overwrites ? BlockCache::kNobody : allocating.owner);
  if (data == nullptr) return nullptr;
  const size_t block_bytes = BlockCache::BlockBytes(size);
  Take(block_bytes);
  // Clears all of the block, because the owner's next tensor may be larger.
  if (foreign && Clears()) std::memset(data, 0, block_bytes);
  Blocks()->Shrink(MostIdle());
  return data;
}

void Free(void* data) {
  if (data == nullptr) return;
  // Blocks are aligned to pages, so other addresses need no lookup.
  if (kKeepsBlocks && reinterpret_cast<uintptr_t>(data) % 4096 == 0) {
    if (const size_t size = Blocks()->Return(data, MostIdle()); size > 0) {
      GiveBack(size);
      return;
    }
  }
  GiveBack(malloc_usable_size(data));
  c10::free_cpu(data);
}

class LimitedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const uint64_t limit = limit_bytes.load(std::memory_order_relaxed);
    const uint64_t used = used_bytes.load(std::memory_order_relaxed);
    // Threads that pass this check at the same time may exceed the limit by the
    // sizes they ask for; later ones are refused.
    // The text does not name the bytes in use, which are all tenants'.
    TORCH_CHECK_WITH(OutOfMemoryError, size <= limit && used <= limit - size,
                     "out of memory: limit ", limit, " bytes, asked ", size);
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        allocating.room > 0 && size <= static_cast<uint64_t>(allocating.room),
        "out of memory: the call asked for ", size,
        " bytes, more than its session and tenant may still take");
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

void SetOneTenant(bool one_tenant) {
  one_tenant_only.store(one_tenant, std::memory_order_relaxed);
}

TensorOwner::TensorOwner(const std::string* tenant, uint64_t most_bytes)
    : owner_before_(std::exchange(allocating.owner, tenant == nullptr
                                                        ? BlockCache::kNobody
                                                        : OwnerId(*tenant))),
      room_before_(std::exchange(allocating.room, WithSlack(most_bytes))) {}
TensorOwner::~TensorOwner() {
  allocating.owner = owner_before_;
  allocating.room = room_before_;
}

OverwritesTensors::OverwritesTensors()
    : before_(std::exchange(allocating.overwrites, true)) {}
OverwritesTensors::~OverwritesTensors() { allocating.overwrites = before_; }

void TidyTensorMemory() { Blocks()->ReleaseUnused(); }

}  // namespace djinn::worker
