// A virtual device on several workers. Each storage has a copy on some of them
// (CopyTable). A call is recorded on that member which lacks the fewest bytes
// of its operands and has room for its results; what it lacks comes from worker
// to worker first. A write leaves the other copies stale; they are given back.
//
// The device has one worker as long as one will do. Begins() looks whether that
// is so still. Once it is not, gate() is closed and every call comes here. The
// device fails as a whole when one member does, and none of them migrates.
//
// Thread-safe: mu_ puts what the lanes do in one order, and is held while a
// member takes a call, which may wait for that member's window. Members never
// call back into what takes it.
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
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/multi_worker/copy_table.h"
#include "client_lib/session/multi_worker/rematerialization.h"
#include "client_lib/session/multi_worker/row_replayer.h"
#include "client_lib/session/multi_worker/single_worker_gate.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/value_mover.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "client_lib/session/recording/graph_captures.h"
#include "client_lib/session/recording/virtual_device.h"
#include "common/base/mutex.h"

namespace djinn {

class MultiWorkerDevice {
 public:
  // `owner` is the virtual device, and outlives this.
  MultiWorkerDevice(std::shared_ptr<SessionContext> context,
                    VirtualDevice* owner, WorkerSet* workers,
                    GraphCaptures* captures);

  // Calls to the only worker pass it. Closed: the device has several.
  SingleWorkerGate& gate() { return gate_; }
  bool begun() const { return gate_.closed(); }
  // Whether calls have to ask Begins(): the device has several workers, or is
  // about to need room.
  bool looks() const { return looks_.load(std::memory_order_acquire); }
  void LookForRoom() { looks_.store(true, std::memory_order_release); }
  // Whether it has several workers, once it has looked for room that the first
  // one lacks. The caller holds no pass of the gate.
  bool Begins() ABSL_LOCKS_EXCLUDED(mu_);
  // Asks for a worker that takes an upload which the first one refused.
  bool BeginsFor(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // The rest as in VirtualDevice, once it has several workers.
  absl::Status Record(uint32_t lane, Call* call);
  absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(uint32_t lane,
                                                            Call* call);
  // `refusal`: the first member's, if it was asked and has no room.
  absl::Status Upload(uint32_t lane, RemoteStorage* storage,
                      const SharedBytes& source, absl::Status refusal);
  // The halves of a copy from another device.
  absl::StatusOr<PullWork> Offer(uint32_t lane, RemoteStorage* storage);
  absl::Status Pull(uint32_t lane, RemoteStorage* storage, PullWork pull);
  absl::Status Seed(uint32_t lane, RemoteStorage* generator, uint64_t seed);
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes);
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes);
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const Recording>& recording,
      const std::shared_ptr<const RowShares>& shares,
      absl::Span<RemoteStorage* const> given);

  // As RowReplayer.
  absl::Status FindSharing(Recording* recording)
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return rows_.FindSharing(recording);
  }
  // The coordinator's answer to a question about stages or rows.
  void OnStages(const v1::StageAnswer& answer);
  // As StagePlans.
  void OnRepeat(int member, RepeatedGraph repeated) {
    plans_.OnRepeat(member, std::move(repeated));
  }
  // The program has dropped a storage that has copies. Takes no lock but
  // leaves.
  void MarkDead(RemoteStorage* storage);
  void AddStatistics(Statistics* sum) const;

 private:
  // Where a call goes.
  struct Choice {
    int member = 0;
    // It is not where most of its operands are.
    bool displaced = false;
    // A plan has it there.
    bool kept = false;
  };
  // A call on its way to a member.
  struct Routed {
    int member = 0;
    absl::InlinedVector<NamedStorage, 8> named;
    // Operands whose copies do not hold what they should: what the call makes
    // is poisoned, and they go. Until it is recorded they stay in doubt, for
    // the next call to look at.
    absl::InlinedVector<RemoteStorage*, 2> unsound;
  };

  bool AddMember(uint64_t needed_bytes, bool patiently)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks for the workers that the program wants from the first.
  void Spread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Choice> Choose(const Call& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Chooses a member for so many bytes that nothing ties to one.
  int ChooseForBytes(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How long a run still takes from the call on, which goes to the member.
  // Once for each call.
  double RemainingFrom(const Call& call, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckOwn(const Call& call) const;
  // Chooses a member, brings what it lacks, and has the call name its copies.
  absl::Status Route(uint32_t lane, Call* call, Routed* routed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Brings what the member lacks. False: a plan would have had the call there,
  // and the worker does not take what it should keep; that is forgotten.
  absl::StatusOr<bool> BringAll(uint32_t lane, const Call& call,
                                const Choice& choice, double remaining_seconds,
                                Routed* routed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes what a call did there. `rematerialization`: how it made its result;
  // may be null.
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
  // Where the last upload went that nothing tied to a member.
  int filling_ ABSL_GUARDED_BY(mu_) = 0;
  // How many workers are to be asked for.
  int workers_wanted_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_MULTI_WORKER_DEVICE_H_
