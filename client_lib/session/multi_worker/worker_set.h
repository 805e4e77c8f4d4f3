// Manages the workers of one virtual device: their arrival, their room, and
// their end. The device has one worker while one suffices. It requests further
// workers when room is short, or at the start if the program wants several.
//
// Thread-safe, except that Add() and AddPatiently() must not run concurrently.
// Replicas are never removed.
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
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/session/multi_worker/storage_copies.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/base/mutex.h"

namespace djinn {

class WorkerSet {
 public:
  static constexpr int kMaxMembers = StorageCopies::kMaxMembers;
  using OnRepeat = std::function<void(int member, RepeatedGraph)>;

  // `incarnation` is as in ReplicaRole.
  WorkerSet(int index, uint64_t incarnation,
            std::shared_ptr<SessionContext> context);

  // Makes the first replica. `owner` outlives all calls of this object;
  // callbacks on the replicas' threads hold it weakly. `on_repeat` may be null.
  void Begin(VirtualDevice* owner, OnRepeat on_repeat);

  int index() const { return index_; }
  uint64_t incarnation() const { return incarnation_; }
  int count() const { return count_.load(std::memory_order_acquire); }
  RemoteDevice& at(int member) const { return *members_[member]; }
  RemoteDevice& first() const { return *first_; }
  std::vector<std::shared_ptr<RemoteDevice>> all() const {
    return {members_.begin(), members_.begin() + count()};
  }
  // Adds no further replica, and makes the existing ones begin to close.
  void BeginClose();
  // Describes all replicas. Requests the first one's lease if there is none
  // yet.
  absl::StatusOr<DevicePlacement> Placement() const;

  // Adds a replica whose worker has `needed_bytes` free. Calls `before_use`
  // once the replica has a worker, before any call is recorded there. Returns
  // false, without effect, if there is no such worker, or if a recently granted
  // worker could not be reached.
  bool Add(uint64_t needed_bytes, absl::FunctionRef<void()> before_use);
  // Adds a replica like Add(), but only if the last attempt is not recent: for
  // a lack of room that is expected and not yet actual.
  bool AddPatiently(uint64_t needed_bytes,
                    absl::FunctionRef<void()> before_use);

  // Adds bytes of live storages that count against a replica's memory.
  void AddUsed(int member, int64_t bytes) {
    used_[member].fetch_add(bytes, std::memory_order_relaxed);
  }
  void TakeUsed(int member, uint64_t bytes) {
    AddUsed(member, -static_cast<int64_t>(bytes));
  }
  // Adds a storage's bytes to those that count on the first replica. Returns
  // false if its worker has no room for all of these bytes.
  bool AddUsedByFirst(uint64_t bytes);

  int64_t RoomLeft(int member) const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the room that an upload may try to use. Ignores an older refusal,
  // which may be outdated, because an upload that is refused does no harm.
  int64_t RoomToTry(int member) const ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that the worker refused to hold `more` bytes in addition to those
  // that count there.
  void LearnRoom(int member, int64_t more) ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets earlier refusals, because the worker has taken an upload.
  void UnlearnRoom(int member) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A replica's room according to its worker's last refusal, and the time of
  // that refusal.
  struct LearnedRoom {
    int64_t bytes = std::numeric_limits<int64_t>::max();
    absl::Duration at;
  };

  std::shared_ptr<RemoteDevice> NewMember(int member, uint64_t needed_bytes);
  void OnFailure(int member, const absl::Status& failure);
  void NoteRefusal(bool had_lease) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the room that is left if the replica may hold `limit` bytes in all.
  int64_t RoomBelow(int64_t limit, int member) const;

  const int index_;
  const uint64_t incarnation_;
  const std::shared_ptr<SessionContext> context_;
  VirtualDevice* owner_ = nullptr;
  OnRepeat on_repeat_;
  RemoteDevice* first_ = nullptr;
  // Written before count_ includes them; constant afterwards.
  std::array<std::shared_ptr<RemoteDevice>, kMaxMembers> members_;
  std::atomic<int> count_{0};
  std::array<std::atomic<int64_t>, kMaxMembers> used_{};

  mutable Mutex mu_;  // no other lock is taken under it
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::array<LearnedRoom, kMaxMembers> learned_room_ ABSL_GUARDED_BY(mu_);
  // The times before which no further replica is requested: `patience_` for an
  // expected lack of room; the other one for any lack, after a granted worker
  // was not reached.
  Deadline patience_ ABSL_GUARDED_BY(mu_);
  Deadline long_patience_ ABSL_GUARDED_BY(mu_);
  // Length of the last long pause.
  absl::Duration pause_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_WORKER_SET_H_
