// Manages the memory of one run: the buffer of every slot and its reservation.
//
// All values that the run creates are reserved at once, if there is room for
// the most of them that lives at a time (Lifetimes). A value that stays takes
// its part of that *room* along. Otherwise each value is reserved when it is
// created, so that whatever fits runs. Before a node its operands are filled,
// if nothing filled them before, and operands that it writes are copied if
// others share them. The memory of results is reserved before the call, and
// corrected to their size after it.
//
// A slot that is known to be a cache is charged as one, and the storage that it
// is bound to counts as one from then on.
//
// Life: CheckExtents(), which changes nothing; Bind(); nodes in order;
// Unbind(). In between the buffers are here and not in the storages, so that a
// count of one means that no other storage shares them.
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
  // All outlive this.
  RunMemory(const Plan& plan, const BoundRun& run, const Lifetimes& lifetimes,
            const RunContext& context)
      : plan_(plan), run_(run), lifetimes_(lifetimes), context_(context) {}

  // Every view must lie inside the storage it is bound to in this run: an error
  // if one does not. A poisoned storage may be smaller than it would have been:
  // its readers are skipped, and only an overwrite of a storage that fits heals
  // it.
  RootError CheckExtents();
  void Bind();
  // Versions advance, whatever happened.
  void Unbind();

  uint32_t slot_count() const { return static_cast<uint32_t>(slots_.size()); }
  Storage* storage(uint32_t slot) const { return slots_[slot].storage; }
  // Views of the graph lie inside the storage.
  bool extents_fit(uint32_t slot) const { return slots_[slot].extents_fit; }
  // Null for what is not born yet, or freed.
  const std::shared_ptr<Buffer>& buffer(uint32_t slot) const {
    return buffers_[slot];
  }
  absl::Span<const std::shared_ptr<Buffer>> buffers() const { return buffers_; }
  // There was no room for all that is born.
  bool cramped() const { return lifetimes_.peak_bytes > 0 && !paid_; }

  // Gives a storage that was never filled its zeros.
  absl::Status Materialize(uint32_t slot) {
    return buffers_[slot] != nullptr ? absl::OkStatus() : Fill(slot);
  }
  // Before a write of it.
  absl::Status Unshare(uint32_t slot) {
    const std::shared_ptr<Buffer>& buffer = buffers_[slot];
    if (buffer == nullptr || IsSoleOwner(buffer)) return absl::OkStatus();
    return CopyForWrite(slot);
  }

  // For the results of a call; what the one before left over is given back.
  absl::Status Reserve(const srg::Node& call);
  // The slot takes a result that was paid for with all that is born. False, and
  // nothing changed, where it was not, or is larger than was thought.
  bool TakePaid(uint32_t slot, std::shared_ptr<Buffer>* result);
  // Corrects the reservation of the call's `result` to so many bytes; then it
  // may be taken.
  absl::Status Pay(size_t result, uint64_t bytes);
  void Take(size_t result, uint32_t slot, std::shared_ptr<Buffer> buffer);
  // Nothing of a call that failed stays.
  void Drop(const srg::Node& call);

  // Lists the values that stay, if all of them may be handed over at once: no
  // slot is poisoned or too small, and every value is reserved. False
  // otherwise.
  bool ListKept(std::vector<KeptResult>* kept) const;
  // Fills a slot that is born and paid for.
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
    // Born and dead in this run: no other message can name it.
    bool temporary = false;
    // Its buffer stays, and is paid for by the run's room until the end.
    bool in_room = false;
  };
  // Memory set aside for what will be there.
  struct Room {
    QuotaShare quota;
    // The class of the bytes in `quota`, once there is one.
    StorageClass storage_class = StorageClass::kOwn;
    std::optional<Reservation> memory;
  };

  // For all that is born, if it fits.
  void ReserveRoom();
  // The class of values created in the slot. Values released in the run are no
  // cache.
  StorageClass ClassOf(uint32_t slot) const {
    return caches_ != nullptr && (*caches_)[slot] && !slots_[slot].temporary
               ? StorageClass::kCache
               : StorageClass::kOwn;
  }
  // A part of the run's room.
  QuotaShare TakeQuota(uint32_t slot, uint64_t bytes) {
    return ClassOf(slot) == StorageClass::kCache ? room_caches_.Split(bytes)
                                                 : room_.quota.Split(bytes);
  }
  bool IsPaid(uint32_t slot) const {
    return paid_ && plan_.birth_bytes()[slot] > 0;
  }
  absl::Status Fill(uint32_t slot);
  absl::Status CopyForWrite(uint32_t slot);
  // A value that stays takes its part of the room along.
  void TakeFromRoom(uint32_t slot);

  const Plan& plan_;
  const BoundRun& run_;
  const Lifetimes& lifetimes_;
  const RunContext& context_;
  // As the plan knew them when the run began.
  std::shared_ptr<const std::vector<bool>> caches_;
  std::vector<Slot> slots_;
  std::vector<Storage> temporaries_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  // The reservation of all created values that are not an output's yet, and the
  // caches' part of the quota.
  Room room_;
  QuotaShare room_caches_;
  bool paid_ = false;
  // By result of the call being executed.
  std::vector<Room> rooms_;
  // The first of lifetimes_.ends that is not freed.
  size_t next_end_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PLAN_RUN_MEMORY_H_
