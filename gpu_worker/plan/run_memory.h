// Manages the memory of one run: the buffer of every slot and its reservation.
//
// If there is room for the peak of all values that the run creates (Lifetimes),
// the run reserves that *room* at once, and a value that outlives the run takes
// its bytes out of the room. Otherwise each value is reserved when it is
// created, so that every run that fits at all is executed. Before a node its
// operands are filled, if nothing filled them before, and operands that it
// writes are copied if others share them. The memory of results is reserved
// before the call, and corrected to their real size after it.
//
// A slot that is known to be a cache is charged as one, and the storage that it
// is bound to counts as one from then on.
//
// Life: CheckExtents(), which changes nothing; Bind(); nodes in order;
// Unbind(). In between the buffers are here and not in the storages, so that a
// reference count of one means that no other storage shares them.
//
// Not thread-safe.
#ifndef GPU_WORKER_PLAN_RUN_MEMORY_H_
#define GPU_WORKER_PLAN_RUN_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/plan/bound_run.h"
#include "gpu_worker/plan/plan.h"
#include "gpu_worker/plan/run_context.h"

namespace djinn::worker {

class RunMemory {
 public:
  // All arguments outlive this.
  RunMemory(const Plan& plan, const BoundRun& run, const Lifetimes& lifetimes,
            const RunContext& context)
      : plan_(plan), run_(run), lifetimes_(lifetimes), context_(context) {}

  // Returns an error unless every view lies inside the storage it is bound to
  // in this run. A poisoned storage may be smaller than it would have been: its
  // readers are skipped, and only an overwrite of a storage that fits heals it.
  RootError CheckExtents();
  void Bind();
  // Returns the buffers to the storages and advances versions, even after
  // failures.
  void Unbind();

  uint32_t slot_count() const { return static_cast<uint32_t>(slots_.size()); }
  Storage* storage(uint32_t slot) const { return slots_[slot].storage; }
  // Returns whether the graph's views of the slot lie inside its storage.
  bool extents_fit(uint32_t slot) const { return slots_[slot].extents_fit; }
  // Returns null for a slot that is not created yet, or freed.
  const std::shared_ptr<Buffer>& buffer(uint32_t slot) const {
    return buffers_[slot];
  }
  absl::Span<const std::shared_ptr<Buffer>> buffers() const { return buffers_; }
  // Returns whether there was no room to reserve all created values at once.
  bool cramped() const { return lifetimes_.peak_bytes > 0 && !paid_; }

  // Fills a storage that was never filled with zeros.
  absl::Status Materialize(uint32_t slot) {
    return buffers_[slot] != nullptr ? absl::OkStatus() : Fill(slot);
  }
  // Copies the slot's buffer if others share it. Called before a write.
  absl::Status Unshare(uint32_t slot) {
    const std::shared_ptr<Buffer>& buffer = buffers_[slot];
    if (buffer == nullptr || IsSoleOwner(buffer)) return absl::OkStatus();
    return CopyForWrite(slot);
  }

  // Reserves memory for the results of a call and returns what the call before
  // left over.
  absl::Status Reserve(const srg::Node& call);
  // Moves a result into the slot if the run's room covers it. Returns false and
  // changes nothing if it does not, or if the result is larger than planned.
  bool TakePaid(uint32_t slot, std::shared_ptr<Buffer>* result);
  // Corrects the reservation of the call's `result` to so many bytes; then
  // Take() may follow.
  absl::Status Pay(size_t result, uint64_t bytes);
  void Take(size_t result, uint32_t slot, std::shared_ptr<Buffer> buffer);
  // Drops the results of a call that failed.
  void Drop(const srg::Node& call);

  // Lists the values that outlive the run if all of them may be handed over at
  // once: no slot is poisoned or too small, and every value is reserved.
  // Returns false otherwise.
  bool ListKept(std::vector<KeptResult>* kept) const;
  // Fills a created slot that the run's room covers.
  void Own(uint32_t slot, std::shared_ptr<Buffer> buffer, uint64_t bytes);

  // Returns the final slots that no node after this one names.
  absl::Span<const std::pair<uint32_t, uint32_t>> EndsUpTo(uint32_t node) const;
  absl::Span<const std::pair<uint32_t, uint32_t>> ends() const {
    return lifetimes_.ends;
  }
  void FreeUpTo(uint32_t node);

 private:
  struct Slot {
    Storage* storage = nullptr;
    bool extents_fit = true;
    // Created and destroyed in this run: no other message can name it.
    bool temporary = false;
    // The value outlives the run, and the run's room covers its buffer until
    // the end.
    bool in_room = false;
  };
  // Memory reserved for values that do not exist yet.
  struct Room {
    QuotaShare quota;
    // The class of the bytes in `quota`, once there is one.
    StorageClass storage_class = StorageClass::kOwn;
    std::optional<Reservation> memory;
  };

  // Reserves room for all created values, if it fits.
  void ReserveRoom();
  // Returns the class of values created in the slot. Values released in the run
  // are no cache.
  StorageClass ClassOf(uint32_t slot) const {
    return caches_ != nullptr && (*caches_)[slot] && !slots_[slot].temporary
               ? StorageClass::kCache
               : StorageClass::kOwn;
  }
  // Takes quota for the slot out of the run's room.
  QuotaShare TakeQuota(uint32_t slot, uint64_t bytes) {
    return ClassOf(slot) == StorageClass::kCache ? room_caches_.Split(bytes)
                                                 : room_.quota.Split(bytes);
  }
  bool IsPaid(uint32_t slot) const {
    return paid_ && plan_.created_bytes()[slot] > 0;
  }
  // Calls `take`, and again if the device has no memory and the session has
  // given up `bytes` that it could spare.
  template <typename Take>
  auto WithRoom(uint64_t bytes, Take take) {
    auto taken = take();
    if (absl::IsResourceExhausted(taken.status()) &&
        context_.quota->MakeRoom(bytes)) {
      taken = take();
    }
    return taken;
  }
  absl::Status Fill(uint32_t slot);
  absl::Status CopyForWrite(uint32_t slot);
  // Moves the bytes of a value that outlives the run out of the room.
  void TakeFromRoom(uint32_t slot);

  const Plan& plan_;
  const BoundRun& run_;
  const Lifetimes& lifetimes_;
  const RunContext& context_;
  // Cache slots as the plan knew them when the run began.
  std::shared_ptr<const std::vector<bool>> caches_;
  std::vector<Slot> slots_;
  std::vector<Storage> temporaries_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  // The reservation of all created values that are not handed to a storage yet,
  // and the caches' share of the quota.
  Room room_;
  QuotaShare room_caches_;
  bool paid_ = false;
  // Reservations by result of the call being executed.
  std::vector<Room> rooms_;
  // Index of the first of lifetimes_.ends that is not freed.
  size_t next_end_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_RUN_MEMORY_H_
