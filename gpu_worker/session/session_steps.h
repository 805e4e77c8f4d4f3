// Steps through a session's messages: takes the next one, calls its handler,
// and completes it, parks it or makes it wait again.
//
// One executor thread calls everything here. While it has a message, it owns
// the session's state (message_flow.h), which it uses without a lock. EndStep()
// may be called by another thread to which the flow gave the state.
#ifndef GPU_WORKER_SESSION_SESSION_STEPS_H_
#define GPU_WORKER_SESSION_SESSION_STEPS_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gpu_worker/plan/ongoing_run.h"

namespace djinn::worker {

struct SessionState;

class SessionSteps {
 public:
  // `state` must outlive this.
  explicit SessionSteps(SessionState* state) : state_(*state) {}

  bool HasWork() const;
  // Executes one message, or the rest of one, from `now` on. Does nothing when
  // there is no work. Returns whether the message was a run. Without `now`, the
  // clock is not read, as for a Read or a Free.
  bool Step(std::optional<absl::Duration> now);
  // Executes at most `most` Reads and Frees, as long as they are next.
  void StepReadsAndFrees(int most);
  // Refuses the next run, and answers so, if it cannot complete by its deadline
  // with `ahead` to be executed before it. A Free may be before the run.
  void StepRefusal(absl::Duration ahead);
  // Begins the next run, in fast mode, for the caller to execute, if `suits`
  // accepts its products; EndRun() follows when it is done. Returns null when
  // the run does not suit, or when something other than its execution comes
  // first; then at most Frees before it were executed. Outside the session's
  // own turn, making a plan counts as such, because the other session would be
  // charged for it.
  OngoingRun* BeginRun(
      absl::FunctionRef<bool(absl::Span<const OngoingRun::Product>)> suits,
      bool own_turn);
  // NoteBegun() notes that the run is executed from `now` on. EndRun() ends it;
  // `used` is its device time.
  void NoteBegun(absl::Duration now);
  void EndRun(absl::Duration used);
  // Notes that the session is not served because it lacks credit.
  void NoteOutOfCredit(absl::Duration now);
  // Ends a turn. Returns whether the session has more work.
  bool EndTurn(absl::Duration now);
  // Ends a step: one that began by taking a message, or one that ending an idle
  // session gave to the caller (MessageFlow::Cancel() and Drop()).
  void EndStep();

 private:
  SessionState& state_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_SESSION_STEPS_H_
