// What a storage of a device that spans workers is on each of them: there it
// has a storage of its own, that of the program only stands for them all. For
// the multi-worker device (multi_worker_device.h), under its lock.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_STORAGE_COPIES_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_STORAGE_COPIES_H_

#include <array>
#include <cstdint>
#include <memory>

#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/multi_worker/cut_graph.h"
#include "client_lib/session/multi_worker/held_value.h"
#include "client_lib/session/multi_worker/rematerialization.h"

namespace djinn {

struct StorageCopies : StorageExtension {
  ~StorageCopies() override { ForgetValue(); }

  // Null where the storage was made while the device had one worker.
  static StorageCopies* Of(const RemoteStorage& storage) {
    return static_cast<StorageCopies*>(storage.extension());
  }

  // Workers that a virtual device may have; as the coordinator has it.
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
  // Its present value, for rematerializations; `storage` is the program's.
  const std::shared_ptr<HeldValue>& Value(RemoteStorage* storage) {
    if (value == nullptr) value = std::make_shared<HeldValue>(storage);
    return value;
  }
  void ForgetValue() {
    if (value != nullptr) value->Leave();
    value = nullptr;
  }
  bool Counts(int member) const { return (counted >> member & 1) != 0; }

  // By member, a bit each: which have the newest version (none as long as
  // nothing wrote it), and against whose room it counts.
  uint32_t holders = 0;
  uint32_t counted = 0;
  // The holders that were sent for it, or make it, and have not said
  // that it came; and the session's root errors before the first of these.
  uint32_t unsure = 0;
  // The unsure ones that make it.
  uint32_t makes = 0;
  uint64_t errors_before = 0;
  // The holder that had it first.
  int owner = 0;
  // A draw has named it, or a seed.
  bool generator = false;
  // The first member's is the program's: nothing has written it since the
  // device began to span.
  bool at_home = false;
  // The member that a plan of stages has keep it; -1: none has. Of so many
  // plans, and by which one.
  int8_t kept_by = -1;
  uint32_t plans = 0;
  PlacedSlot placed;
  // How the newest version was made, if it can be rematerialized.
  std::shared_ptr<const Rematerialization> rematerialization;
  // The newest version, where rematerializations name it; null: none does.
  std::shared_ptr<HeldValue> value;
  // By member; null where it has not been.
  std::array<StoragePtr, kMaxMembers> at;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STORAGE_COPIES_H_
