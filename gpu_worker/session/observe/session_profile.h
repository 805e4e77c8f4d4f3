// Measures what a session's messages cost on this worker, while its client
// profiles it: see Profile in proto/djinn/v1/execution.proto.
//
// The executor says what it is doing, the threads that receive note when Reads
// arrived, and a reply reports the time between. Times of runs and nodes gather
// here, up to a bound, until the client requests them.
//
// Any thread may call Note(); everything else belongs to the executor.
#ifndef GPU_WORKER_SESSION_OBSERVE_SESSION_PROFILE_H_
#define GPU_WORKER_SESSION_OBSERVE_SESSION_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/stage_times.h"
#include "common/transport/arrival.h"
#include "djinn/v1/profile.pb.h"
#include "gpu_worker/plan/node_timer.h"
#include "gpu_worker/plan/plan.h"

namespace djinn::worker {

class SessionProfile {
 public:
  // Limits of one report.
  static constexpr size_t kMaxRuns = 4096;
  static constexpr size_t kMaxNodes = 65536;

  // The work that a message is being executed for, as in ReplyTiming.
  enum Stage { kAdmission, kBind, kExecute, kReply, kStageCount };
  using Stages = StageTimes<kStageCount>;

  // When a message arrived, and how long the session had spent in each stage by
  // then.
  struct Mark {
    absl::Duration received;
    absl::Duration decoded;
    Stages::Reading spent = {};
  };

  // The life of a run: when its plan's lookup, its binding and its execution
  // began, and when it ended.
  struct RunStages {
    absl::Duration looked_up;
    absl::Duration bound;
    absl::Duration started;
    absl::Duration ended;
  };

  // `nodes_untimed` says why the device cannot time nodes; it is empty if the
  // device can. `clock` must outlive the profile.
  SessionProfile(Clock* clock, std::string nodes_untimed)
      : clock_(clock), nodes_untimed_(std::move(nodes_untimed)) {}

  absl::Duration Now() const { return clock_->Monotonic(); }

  // Returns the mark of a message; call it in the callback that brings the
  // message.
  Mark Note() const;

  void Enter(Stage stage) { stages_.Enter(stage, Now()); }
  void Leave() { stages_.Leave(Now()); }

  // Returns what the Read with this mark waited for until now.
  v1::ReplyTiming TimingOf(const Mark& mark) const;

  // Returns the timer for the next run. It keeps no times if the device cannot
  // time nodes.
  NodeTimer NewTimer() const;
  void AddRun(uint64_t sequence, const Plan& plan, v1::ExecutionMode mode,
              const RunStages& stages, const NodeTimer& timer);

  // Returns everything gathered since the last call, in answer to the Profile
  // with this sequence.
  v1::ProfileReport TakeReport(uint64_t sequence);

 private:
  // Returns the indexes of the plan's operators in the report.
  const std::vector<uint32_t>& OperatorsOf(const Plan& plan);

  Clock* const clock_;
  const std::string nodes_untimed_;
  const Arrival::Interest interest_;
  Stages stages_;
  v1::ProfileReport report_;
  size_t nodes_ = 0;  // number in report_
  absl::flat_hash_map<std::string, uint32_t> operators_;
  absl::flat_hash_map<std::string, std::vector<uint32_t>> by_fingerprint_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_SESSION_PROFILE_H_
