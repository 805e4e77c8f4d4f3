// What a session's messages cost on this worker, while its client profiles it:
// see Profile in proto/djinn/v1/execution.proto.
//
// The executor says what it is at, the threads that receive note when Reads
// came, and a reply says what lay between. Times of runs and nodes gather here
// until they are asked for, up to a bound.
//
// Note() may be called by any thread; everything else belongs to the executor.
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
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/plan/node_timer.h"
#include "gpu_worker/plan/plan.h"

namespace djinn::worker {

class SessionProfile {
 public:
  // Of one report.
  static constexpr size_t kMaxRuns = 4096;
  static constexpr size_t kMaxNodes = 65536;

  // What a message is being executed for, as in ReplyTiming.
  enum Stage { kAdmission, kBind, kExecute, kReply, kStageCount };
  using Stages = StageTimes<kStageCount>;

  // When a message came, and what the session had spent by then.
  struct Mark {
    absl::Duration received;
    absl::Duration decoded;
    Stages::Reading spent = {};
  };

  // The life of a run: when looking its plan up, binding it and executing it
  // began, and when it ended.
  struct RunStages {
    absl::Duration looked_up;
    absl::Duration bound;
    absl::Duration started;
    absl::Duration ended;
  };

  // `nodes_untimed` says why the device cannot time nodes; empty if it can.
  // `clock` outlives the profile.
  SessionProfile(Clock* clock, std::string nodes_untimed)
      : clock_(clock), nodes_untimed_(std::move(nodes_untimed)) {}

  absl::Duration Now() const { return clock_->Monotonic(); }

  // In the callback that brings the message.
  Mark Note() const;

  void Enter(Stage stage) { stages_.Enter(stage, Now()); }
  void Leave() { stages_.Leave(Now()); }

  // Says what the Read with this mark met until now.
  v1::ReplyTiming TimingOf(const Mark& mark) const;

  // For the next run; keeps no times where the device cannot give them.
  NodeTimer NewTimer() const;
  void AddRun(uint64_t sequence, const Plan& plan, v1::ExecutionMode mode,
              const RunStages& stages, const NodeTimer& timer);

  // What was gathered since the last call, in answer to the Profile with this
  // sequence.
  v1::ProfileReport TakeReport(uint64_t sequence);

 private:
  // Where the plan's operators stand in the report.
  const std::vector<uint32_t>& OperatorsOf(const Plan& plan);

  Clock* const clock_;
  const std::string nodes_untimed_;
  const Arrival::Interest interest_;
  Stages stages_;
  v1::ProfileReport report_;
  size_t nodes_ = 0;  // in report_
  absl::flat_hash_map<std::string, uint32_t> operators_;
  absl::flat_hash_map<std::string, std::vector<uint32_t>> by_fingerprint_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_SESSION_PROFILE_H_
