// Describes the copies of a multi-worker device's storage. Each replica has a
// storage of its own, and the program's storage represents them all. The
// multi-worker device's lock (multi_worker_device.h) guards the copies.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_STORAGE_COPIES_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_STORAGE_COPIES_H_

#include <array>
#include <cstdint>
#include <memory>

#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/multi_worker/rematerialization.h"
#include "client_lib/session/multi_worker/stage_order.h"

namespace djinn {

struct StorageCopies : StorageExtension {
  ~StorageCopies() override { ForgetValue(); }

  // Returns null if the storage was made while the device had one worker.
  static StorageCopies* Of(const RemoteStorage& storage) {
    return static_cast<StorageCopies*>(storage.extension());
  }

  // Limit on the workers of a virtual device; the coordinator has the same.
  static constexpr int kMaxMembers = 16;

  bool Holds(int member) const { return (holders >> member & 1) != 0; }
  bool IsUnsure(int member) const { return (unsure >> member & 1) != 0; }
  bool Makes(int member) const { return (makes >> member & 1) != 0; }
  void BecomeUnsure(int member, uint64_t errors) {
    // The oldest doubt counts.
    if (unsure == 0) errors_before = errors;
    unsure |= 1u << member;
  }
  void BecomeSure(int member) {
    unsure &= ~(1u << member);
    makes &= ~(1u << member);
  }
  // Returns the present value of `storage`, the program's storage, for
  // rematerializations.
  const std::shared_ptr<HeldValue>& Value(RemoteStorage* storage) {
    if (value == nullptr) value = std::make_shared<HeldValue>(storage);
    return value;
  }
  void ForgetValue() {
    if (value != nullptr) value->Leave();
    value = nullptr;
  }
  bool Counts(int member) const { return (counted >> member & 1) != 0; }

  // One bit for each replica. `holders`: whether the replica has the newest
  // version; none has it before the first write. `counted`: whether the storage
  // counts against the replica's memory.
  uint32_t holders = 0;
  uint32_t counted = 0;
  // `unsure`: the holders that fetch or rematerialize the value and have not
  // confirmed it yet. `errors_before`: the session's count of root errors
  // before the first of these began.
  uint32_t unsure = 0;
  // The unsure holders that rematerialize it.
  uint32_t makes = 0;
  uint64_t errors_before = 0;
  // The holder that had the value first.
  int owner = 0;
  // A draw or a seed has named the storage.
  bool generator = false;
  // True if the first replica's copy is the program's storage itself, because
  // nothing has written the storage since the device got several workers.
  bool at_home = false;
  // The replica that should keep the storage by a plan of stages, or -1; the
  // number of plans when this was last determined; and the plan's slot.
  int8_t kept_by = -1;
  uint32_t plans = 0;
  PlacedSlot placed;
  // Describes how to compute the newest version, if it can be rematerialized.
  std::shared_ptr<const Rematerialization> rematerialization;
  // The newest version, if rematerializations name it; otherwise null.
  std::shared_ptr<HeldValue> value;
  // The copy of each replica; null if it never had one.
  std::array<StoragePtr, kMaxMembers> at;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STORAGE_COPIES_H_
