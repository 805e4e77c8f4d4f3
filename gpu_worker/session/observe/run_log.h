// Records what holds a session's messages, how long its runs take, and how they
// ended, for operators and for the queue's forecasts.
//
// Thread-safe. Its lock comes after the message flow's, and it makes no
// callbacks.
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

  // See RunGates.
  RunLog(const ServedTime* served,
         std::shared_ptr<const ServedTime::Tenant> tenant)
      : gates_(served, std::move(tenant)) {}

  // Returns the mark in which other threads note, under any lock, that what the
  // session waits for has arrived.
  std::shared_ptr<RunGates::Mark> mark() const;
  // Puts the session at `gate` from `now` on.
  void Enter(v1::RunGate gate, absl::Duration now);
  // Notes that the session has credit again, if it waited for that.
  void EnterWithCredit(absl::Duration now);

  // Define() notes that the graph was admitted under this id, and Forget() that
  // it is forgotten.
  void Define(uint64_t id, absl::string_view fingerprint);
  void Forget(uint64_t id);
  // Sets the phase of the graph's runs.
  void SetPhase(uint64_t id, v1::Phase phase);
  // Returns the phase; unspecified when it is not known.
  v1::Phase PhaseOf(uint64_t id) const;
  // NoteTime() notes how long a run of the graph took.
  // Expected() returns what the next one takes at least; 0 when that is not
  // known.
  void NoteTime(uint64_t id, absl::Duration took, absl::Duration now);
  absl::Duration Expected(uint64_t id, absl::Duration now) const;

  // These record that a run was received, begins, waits again after all, and is
  // over. Finish() describes that run in `record` unless it is null, and
  // returns whether there was one.
  void Receive(absl::Duration now);
  void Begin(const Waiting& run, v1::Phase phase, absl::Duration now);
  void PutBack();
  bool Finish(const RunRecords::End& end, absl::Duration now,
              v1::RunRecord* record = nullptr);
  // Records that all runs that wait were given up.
  void Abandon(absl::Span<const Waiting> waiting, absl::Duration now);
  // Records that the run in service yielded to another one for `away`. `reason`
  // must never be freed.
  void Yield(const RunPeer& first, absl::string_view reason,
             absl::Duration away);
  // Records how many of its products the run in service shared, and with whom.
  void Share(uint64_t products,
             absl::Span<const std::shared_ptr<const RunPeer>> with);
  // Describes the session's runs with those that wait. `completed` is how many
  // messages the session has completed.
  void Describe(absl::Span<const Waiting> waiting, uint64_t completed,
                absl::Duration now, v1::LeaseRuns* runs);

 private:
  mutable Mutex mu_;
  RunGates gates_ ABSL_GUARDED_BY(mu_);
  RunRecords records_ ABSL_GUARDED_BY(mu_);
  scheduler::RunTimes times_ ABSL_GUARDED_BY(mu_);
  // The known phases of graphs, by id.
  absl::flat_hash_map<uint64_t, v1::Phase> phases_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_RUN_LOG_H_
