// Implements a virtual device on several workers. Each storage has a copy on
// some of them (CopyTable). A call is recorded on the replica that lacks the
// fewest bytes of its operands and has room for its results. The operands that
// the replica lacks first move there, from worker to worker. A write makes the
// other copies stale and frees them.
//
// The device has one worker while one suffices, which Begins() checks. Once it
// does not suffice, gate() is closed and this class takes every call. A replica
// that loses its worker recovers by itself. One that cannot fails the device.
// Replicas do not migrate.
//
// Thread-safe: mu_ puts the lanes' calls in one order. A thread holds mu_ while
// a replica takes a call, which may wait for that replica's window. Replicas
// never call back into code that takes mu_.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_MULTI_WORKER_DEVICE_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_MULTI_WORKER_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/multi_worker/copy_table.h"
#include "client_lib/session/multi_worker/rematerialization.h"
#include "client_lib/session/multi_worker/row_replayer.h"
#include "client_lib/session/multi_worker/single_worker_gate.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/value_mover.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/base/mutex.h"

namespace djinn {

class MultiWorkerDevice {
 public:
  // `owner` is the virtual device, which outlives this object.
  MultiWorkerDevice(std::shared_ptr<SessionContext> context,
                    VirtualDevice* owner, WorkerSet* workers,
                    GraphCaptures* captures);

  // Returns the gate that calls to the only worker pass. The gate is closed
  // once the device has several workers.
  SingleWorkerGate& gate() { return gate_; }
  bool begun() const { return gate_.closed(); }
  // Returns whether calls must ask Begins(), because the device has several
  // workers or may soon lack room.
  bool looks() const { return looks_.load(std::memory_order_acquire); }
  void LookForRoom() { looks_.store(true, std::memory_order_release); }
  // Returns whether the device has several workers. If the first worker lacks
  // room, first looks for another one. The caller holds no pass of the gate.
  bool Begins() ABSL_LOCKS_EXCLUDED(mu_);
  // Requests a worker for an upload that the first one refused.
  bool BeginsFor(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // The following methods do what those of VirtualDevice do. They are called
  // once the device has several workers.

  // Appends the call to the segment of the chosen replica.
  absl::Status Record(uint32_t lane, Call* call);
  absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(uint32_t lane,
                                                            Call* call);
  // `refusal` is the first replica's, if it was asked and has no room.
  absl::Status Upload(uint32_t lane, RemoteStorage* storage,
                      const SharedBytes& source, absl::Status refusal);
  // Offer() and Pull() are the two halves of a copy from another device.
  absl::StatusOr<PullWork> Offer(uint32_t lane, RemoteStorage* storage);
  absl::Status Pull(uint32_t lane, RemoteStorage* storage, PullWork pull);
  absl::Status Seed(uint32_t lane, RemoteStorage* generator, uint64_t seed);
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes);
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes);
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
      const std::shared_ptr<const RowShares>& shares,
      absl::Span<RemoteStorage* const> given);

  // See RowReplayer.
  absl::Status FindSharing(CapturedGraph* captured_graph)
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return rows_.FindSharing(captured_graph);
  }
  // Takes the coordinator's answer to a question about stages or rows.
  void OnStages(const v1::StageAnswer& answer);
  // See StagePlans.
  void OnRepeat(int member, RepeatedGraph repeated) {
    plans_.OnRepeat(member, std::move(repeated));
  }
  // Notes that the program released a storage that has copies. Takes only locks
  // under which no other lock is taken.
  void MarkDead(RemoteStorage* storage);
  void AddStatistics(Statistics* sum) const;

 private:
  // The replica chosen for a call, and why.
  struct Choice {
    int member = 0;
    // Most of its operands are on another replica.
    bool displaced = false;
    // A plan assigns the call to this replica.
    bool kept = false;
  };
  // A call on its way to a replica.
  struct Routed {
    int member = 0;
    absl::InlinedVector<NamedStorage, 8> named;
    // The operands whose copies do not hold the right value. The call's results
    // are poisoned, and the copies are dropped. Until the call is recorded, the
    // copies stay marked as unsure, so that the next call checks them.
    absl::InlinedVector<RemoteStorage*, 2> unsound;
  };

  bool AddMember(uint64_t needed_bytes, bool patiently)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Requests the workers that the program wants from the start.
  void Spread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Choice> Choose(const Call& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Chooses a replica for `bytes` bytes that no operand ties to one.
  int ChooseForBytes(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns how long a run still takes from this call on, if the call goes to
  // the replica `member`. Must be called once per call.
  double RemainingFrom(const Call& call, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckOwn(const Call& call) const;
  // Chooses a replica, moves missing operands there, and makes the call name
  // the replica's copies.
  absl::Status Route(uint32_t lane, Call* call, Routed* routed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves missing operands to the replica. Returns false if a plan chose the
  // replica and its worker refuses a storage that the plan assigns to it. The
  // plan is then forgotten for that storage.
  absl::StatusOr<bool> BringAll(uint32_t lane, const Call& call,
                                const Choice& choice, double remaining_seconds,
                                Routed* routed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that a call wrote storages on the replica. `rematerialization` says
  // how to compute its result a second time; it may be null.
  absl::Status Settle(
      uint32_t lane, const Routed& routed,
      std::shared_ptr<const Rematerialization> rematerialization = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<SessionContext> context_;
  VirtualDevice* const owner_;
  WorkerSet* const workers_;
  GraphCaptures* const captures_;
  SingleWorkerGate gate_;
  std::atomic<bool> looks_{false};
  StagePlans plans_;

  Mutex mu_;
  CopyTable table_ ABSL_GUARDED_BY(mu_);
  RoundClock rounds_ ABSL_GUARDED_BY(mu_);
  ValueMover mover_ ABSL_GUARDED_BY(mu_);
  RowReplayer rows_ ABSL_GUARDED_BY(mu_);
  // The replica that took the last upload that no storage tied to one.
  int filling_ ABSL_GUARDED_BY(mu_) = 0;
  // Number of workers to request.
  int workers_wanted_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_MULTI_WORKER_DEVICE_H_
