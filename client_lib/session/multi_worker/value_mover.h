// Moves values between the members of a multi-worker device: from worker to
// worker, or by executing there what made them.
//
// A copy that was brought is *unsure* until the member said that it came. It is
// looked at where something has failed since.
//
// Not thread-safe: the multi-worker device's lock guards it, and is held while
// a member takes what is recorded there.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_VALUE_MOVER_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_VALUE_MOVER_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/multi_worker/copy_table.h"
#include "client_lib/session/multi_worker/rematerializer.h"
#include "client_lib/session/multi_worker/stage_order.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/worker_set.h"

namespace djinn {

// Whether the error is of what a worker executed.
bool IsRootError(const absl::Status& status);

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

  // Has the newest version come to the member. `remaining_seconds`: what waits
  // for it, as in OfferRank.
  absl::Status Bring(uint32_t lane, RemoteStorage* storage, int member,
                     double remaining_seconds = StageOrder::kUnknown);
  // Does the same unless the member has it, and makes sure of what it has.
  absl::Status BringWhole(uint32_t lane, RemoteStorage* storage,
                          int member) override;
  // Where something has failed since the copy was brought, looks whether that
  // was it; then the copy goes, for another one to be brought.
  absl::Status MakeSure(uint32_t lane, RemoteStorage* storage, int member);
  // Waits for what was brought. The member alone keeps what has come from now
  // on; the others stay where they were, and are returned. `told`: the program
  // will not hear of their errors otherwise, and need not.
  absl::StatusOr<absl::InlinedVector<RemoteStorage*, 2>> Move(
      uint32_t lane, absl::Span<RemoteStorage* const> storages, int member,
      bool told);
  // Sends what a member's own storage holds to another member's.
  absl::Status Send(uint32_t lane, RemoteStorage* storage, int from,
                    RemoteStorage* copy, int to, double remaining_seconds);

 private:
  absl::Status BringGenerator(uint32_t lane, RemoteStorage* storage,
                              int member);
  // Waits for what was brought to the member: whether it is as good there as
  // where it came from. If not, `why` is the root error; other errors: it is
  // not known.
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
