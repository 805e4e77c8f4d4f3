// The workers of one virtual device: how they come, what room they have, and
// their end. There is one as long as one will do; each further one is asked for
// when room lacks, or because the program wants several from the first.
//
// Thread-safe. Add() and AddPatiently() come one at a time. Members are never
// removed.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_WORKER_SET_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_WORKER_SET_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/session/multi_worker/storage_copies.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/base/mutex.h"

namespace djinn {

class WorkerSet {
 public:
  static constexpr int kMaxMembers = StorageCopies::kMaxMembers;
  using OnRepeat = std::function<void(int member, RepeatedGraph)>;

  WorkerSet(int index, std::shared_ptr<SessionContext> context);

  // Makes the first member. `owner` outlives calls, and is held weakly by what
  // its members' threads call. `on_repeat` may be null.
  void Begin(VirtualDevice* owner, OnRepeat on_repeat);

  int index() const { return index_; }
  int count() const { return count_.load(std::memory_order_acquire); }
  RemoteDevice& at(int member) const { return *members_[member]; }
  RemoteDevice& first() const { return *first_; }
  std::vector<std::shared_ptr<RemoteDevice>> all() const {
    return {members_.begin(), members_.begin() + count()};
  }
  // Adds no further member, and has those that there are begin to close.
  void BeginClose();
  // Describes all of them. Asks for the first one's lease if there is none yet.
  absl::StatusOr<DevicePlacement> Placement() const;

  // Adds a member whose worker has `needed_bytes` free. `before_use` is called
  // once it has a worker, before anything is recorded there. False when there
  // is no worker for it, or one was given and not reached a short while ago;
  // nothing has changed then.
  bool Add(uint64_t needed_bytes, absl::FunctionRef<void()> before_use);
  // Does the same for room that is only expected to lack, so not too often.
  bool AddPatiently(uint64_t needed_bytes,
                    absl::FunctionRef<void()> before_use);

  // The bytes of the live storages that count against a member's room.
  void AddUsed(int member, int64_t bytes) {
    used_[member].fetch_add(bytes, std::memory_order_relaxed);
  }
  void TakeUsed(int member, uint64_t bytes) {
    AddUsed(member, -static_cast<int64_t>(bytes));
  }
  // Adds the bytes of a storage to the first member's. False when its worker
  // has no room for all that counts there.
  bool AddUsedByFirst(uint64_t bytes);

  int64_t RoomLeft(int member) const ABSL_LOCKS_EXCLUDED(mu_);
  // The room that an upload may try to use: it can be refused without harm, and
  // what was learned some time ago may have changed.
  int64_t RoomToTry(int member) const ABSL_LOCKS_EXCLUDED(mu_);
  // The worker has refused to hold `more` bytes besides those that count there.
  void LearnRoom(int member, int64_t more) ABSL_LOCKS_EXCLUDED(mu_);
  // The worker has taken an upload: forgets what says that it would not.
  void UnlearnRoom(int member) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The room of a member by its worker's last refusal, and when that was.
  struct LearnedRoom {
    int64_t bytes = std::numeric_limits<int64_t>::max();
    absl::Duration at;
  };

  std::shared_ptr<RemoteDevice> NewMember(int member, uint64_t needed_bytes);
  void OnFailure(int member, const absl::Status& failure);
  void NoteRefusal(bool had_lease) ABSL_LOCKS_EXCLUDED(mu_);
  // The room that is left if the member may hold `limit` in all.
  int64_t RoomBelow(int64_t limit, int member) const;

  const int index_;
  const std::shared_ptr<SessionContext> context_;
  VirtualDevice* owner_ = nullptr;
  OnRepeat on_repeat_;
  RemoteDevice* first_ = nullptr;
  // Written before count_ says so, never changed then.
  std::array<std::shared_ptr<RemoteDevice>, kMaxMembers> members_;
  std::atomic<int> count_{0};
  std::array<std::atomic<int64_t>, kMaxMembers> used_{};

  mutable Mutex mu_;  // a leaf
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::array<LearnedRoom, kMaxMembers> learned_room_ ABSL_GUARDED_BY(mu_);
  // Until when no further member is asked for: where room is only expected to
  // lack, and at all, after a worker that was given and not reached.
  Deadline patience_ ABSL_GUARDED_BY(mu_);
  Deadline long_patience_ ABSL_GUARDED_BY(mu_);
  // How long the last of these was.
  absl::Duration pause_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_WORKER_SET_H_
