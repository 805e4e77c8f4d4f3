// Moves values between the replicas of a multi-worker device: from worker to
// worker, or by rematerialization.
//
// A moved copy is *unsure* until the replica confirms its arrival. An unsure
// copy is checked if something has failed meanwhile.
//
// Not thread-safe: the multi-worker device's lock guards it. The caller holds
// this lock while a replica takes a call.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_VALUE_MOVER_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_VALUE_MOVER_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/multi_worker/copy_table.h"
#include "client_lib/session/multi_worker/rematerializer.h"
#include "client_lib/session/multi_worker/stage_order.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/worker_set.h"

namespace djinn {

// Returns whether the error comes from what a worker executed.
bool IsRootError(const absl::Status& status);
// Returns whether a worker refused an upload for lack of room, rather than for
// another reason.
inline bool LacksRoom(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && IsRootError(status);
}

class ValueMover : public OperandSource {
 public:
  ValueMover(SessionContext* context, WorkerSet* workers, CopyTable* table,
             StagePlans* plans, RoundClock* rounds)
      : context_(context),
        workers_(workers),
        table_(table),
        plans_(plans),
        rounds_(rounds),
        rematerializer_(context, workers, table, plans, this) {}

  Rematerializer& rematerializer() { return rematerializer_; }
  const Rematerializer& rematerializer() const { return rematerializer_; }

  // Gives the replica the newest version of the storage. `remaining_seconds` is
  // the time that the run still takes once the value has arrived, as in
  // OfferRank.
  absl::Status Bring(uint32_t lane, RemoteStorage* storage, int member,
                     double remaining_seconds = StageOrder::kUnknown);
  // Gives the replica the newest version unless it has it already, and
  // otherwise checks the copy that it has.
  absl::Status BringWhole(uint32_t lane, RemoteStorage* storage,
                          int member) override;
  // Checks the copy if something has failed since it was moved. If that failure
  // affected the copy, drops the copy, so that another one is moved.
  absl::Status MakeSure(uint32_t lane, RemoteStorage* storage, int member);
  // Waits until the moved storages have arrived. From then on only this replica
  // keeps those that did. Returns those that did not, which stay on their
  // previous replicas. `told` marks their errors as reported, because the
  // program does not need them.
  absl::StatusOr<absl::InlinedVector<RemoteStorage*, 2>> Move(
      uint32_t lane, absl::Span<RemoteStorage* const> storages, int member,
      bool told);
  // Sends the contents of a replica's own storage to another replica's.
  absl::Status Send(uint32_t lane, RemoteStorage* storage, int from,
                    RemoteStorage* copy, int to, double remaining_seconds);

 private:
  absl::Status BringGenerator(uint32_t lane, RemoteStorage* storage,
                              int member);
  // Waits for the moved storage. Returns true if it arrived as it is at its
  // source. If it returns false, `why` is the root error. Any other error means
  // that the outcome is unknown.
  absl::StatusOr<bool> HasCome(uint32_t lane, RemoteStorage* storage,
                               int member, absl::Status* why);

  SessionContext* const context_;
  WorkerSet* const workers_;
  CopyTable* const table_;
  StagePlans* const plans_;
  RoundClock* const rounds_;
  Rematerializer rematerializer_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_VALUE_MOVER_H_
