// Notes what holds a session's messages, how long its runs take, and what
// became of them, for operators and for the queue's forecasts.
//
// Thread-safe. Its lock comes after the message flow's, and it calls nothing.
#ifndef GPU_WORKER_SESSION_OBSERVE_RUN_LOG_H_
#define GPU_WORKER_SESSION_OBSERVE_RUN_LOG_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/session/observe/run_gates.h"
#include "gpu_worker/session/observe/run_records.h"
#include "gpu_worker/session/observe/served_time.h"
#include "scheduler/fairness/run_times.h"

namespace djinn::worker {

class RunLog {
 public:
  using Waiting = RunRecords::Waiting;

  // As RunGates.
  RunLog(const ServedTime* served,
         std::shared_ptr<const ServedTime::Tenant> tenant)
      : gates_(served, std::move(tenant)) {}

  // Where others note, under any lock, that what the session waits for came.
  std::shared_ptr<RunGates::Mark> mark() const;
  // The session is at `gate` from `now` on.
  void Enter(v1::RunGate gate, absl::Duration now);
  // The session has credit again, if it waited for that.
  void EnterWithCredit(absl::Duration now);

  // The graph was admitted under this id, or is forgotten.
  void Define(uint64_t id, absl::string_view fingerprint);
  void Forget(uint64_t id);
  // Runs of the graph are of this phase.
  void SetPhase(uint64_t id, v1::Phase phase);
  // Unspecified where that is not known.
  v1::Phase PhaseOf(uint64_t id) const;
  // A run of the graph that has a deadline took so long; what the next one
  // takes at least, or 0 where that is not known.
  void NoteTime(uint64_t id, absl::Duration took, absl::Duration now);
  absl::Duration Expected(uint64_t id, absl::Duration now) const;

  // A run was received; begins, or waits again after all; is over.
  void Receive(absl::Duration now);
  void Begin(const Waiting& run, v1::Phase phase, absl::Duration now);
  void PutBack();
  void Finish(const RunRecords::End& end, absl::Duration now);
  // Those that wait, all of them, were given up.
  void Abandon(absl::Span<const Waiting> waiting, absl::Duration now);
  // The run in service yielded to another one for so long. `reason` lives
  // forever.
  void Yield(const RunPeer& first, absl::string_view reason,
             absl::Duration away);
  // So many of its products were shared with runs of these.
  void Share(uint64_t products,
             absl::Span<const std::shared_ptr<const RunPeer>> with);
  // Describes the runs of a session that has completed so many messages, with
  // those that wait.
  void Describe(absl::Span<const Waiting> waiting, uint64_t completed,
                absl::Duration now, v1::LeaseRuns* runs);

 private:
  mutable Mutex mu_;
  RunGates gates_ ABSL_GUARDED_BY(mu_);
  RunRecords records_ ABSL_GUARDED_BY(mu_);
  scheduler::RunTimes times_ ABSL_GUARDED_BY(mu_);
  // Of graphs of a known phase, by id.
  absl::flat_hash_map<uint64_t, v1::Phase> phases_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RUN_LOG_H_
