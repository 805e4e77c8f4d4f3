// Decides what is evicted from device memory: idle contents (content_cache.h),
// and the device's spare memory, such as prepacked weights. Also lends spare
// memory to the device. Other stores evict for themselves: contents on disk
// (content_store.h), plans (plan/graph_cache.h) and device graphs
// (device/cuda/graph_store.h).
//
// The order depends on who asks:
//   - An allocation that does not fit takes spare memory first, and evicts idle
//     contents only for what is still missing. Its bytes are needed at once,
//     and the device can make what it loses from memory that it still has. An
//     evicted content has to come from a disk or a client again. Last, it ends
//     sessions whose client has been away for a second, one after the other,
//     and evicts the contents that they leave. It ends none if all of them
//     together hold too little. If such a client comes back, it recovers as
//     from a lost worker.
//   - Housekeeping evicts idle contents first, from a lower share of used
//     memory, and releases spare memory only under critical pressure. It acts
//     ahead of need: spare memory makes every run faster, whereas many idle
//     contents, such as inputs that differ in every run, are never used again.
//
// Thread-safe. Has no state of its own: the ledger, the cache and the device
// guard theirs.
#ifndef GPU_WORKER_STORE_MEMORY_RELIEF_H_
#define GPU_WORKER_STORE_MEMORY_RELIEF_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gpu_worker/device/device.h"
#include "gpu_worker/store/content_cache.h"
#include "gpu_worker/store/device_memory.h"

namespace djinn::worker {

class MemoryRelief final : private SpareMemory {
 public:
  // Serves `memory`, as its reclaimer, and its device, as the source of spare
  // memory, until the destructor; no thread may allocate during either. Calls
  // `changed`, without locks, when contents may have been evicted. `end_lost`
  // ends a session whose client is away and frees its storages. It returns
  // whether it did: not if there is none, or if all of them together hold less
  // than `missing` bytes. The allocating thread calls it, without locks. All
  // must outlive this.
  MemoryRelief(DeviceMemory* memory, ContentCache* contents,
               std::function<void()> changed,
               std::function<bool(uint64_t missing)> end_lost);
  ~MemoryRelief() override;
  MemoryRelief(const MemoryRelief&) = delete;
  MemoryRelief& operator=(const MemoryRelief&) = delete;

  // Does housekeeping's part. Evicts idle contents that exceed half of the
  // device, or the high share of used memory; then releases spare memory that
  // exceeds the critical share.
  void KeepHouse();

 private:
  // Does an allocation's part: frees up to `bytes`.
  void MakeRoom(uint64_t bytes);
  // Reserves only free memory: it never evicts or releases anything.
  std::shared_ptr<void> Reserve(const std::string& tenant,
                                uint64_t bytes) override;

  DeviceMemory& memory_;
  ContentCache& contents_;
  const std::function<void()> changed_;
  const std::function<bool(uint64_t)> end_lost_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_MEMORY_RELIEF_H_
