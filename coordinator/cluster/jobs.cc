#include "coordinator/cluster/jobs.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/work_table.h"
#include "djinn/v1/notes.pb.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/patterns/operators.h"

namespace djinn::coordinator::jobs {
namespace {

// Describes the work of a graph that ran `runs` times: all of it, under the
// class and the phase that most of it has.
void FillWork(const scheduler::Work& work, uint64_t runs,
              v1::RecordedJob* job) {
  const scheduler::Work::Part* most = nullptr;
  double flops = 0, bytes = 0;
  uint64_t calls = 0;
  for (const scheduler::Work::Part& part : work.parts()) {
    flops += static_cast<double>(part.cost.flops);
    bytes += static_cast<double>(part.cost.bytes());
    calls += part.calls;
    if (most == nullptr || part.cost.flops > most->cost.flops) most = &part;
  }
  job->set_phase(static_cast<v1::Phase>(work.phase()));
  if (most != nullptr) {
    job->set_op_class(std::string(semantics::OpClassName(most->op_class)));
  }
  const auto times = static_cast<double>(runs);
  job->set_flops(times * flops);
  job->set_bytes(times * bytes);
  job->set_calls(runs * calls);
}

// Returns the session whose runs of the srg graph the worker's last report
// describes: of the sessions that defined it, the one whose use grew most. Null
// when the report names no session that did.
const Session* RunnerOf(ClusterState& state, const Worker& worker,
                        const std::string& fingerprint)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const Session* runner = nullptr;
  absl::Duration most = -absl::InfiniteDuration();
  for (const std::string& lease_id : worker.leases.changed) {
    const Worker::Held& held = worker.leases.held.at(lease_id);
    const Session* const session = state.sessions.Find(held.session_id);
    if (session == nullptr || held.grown <= most ||
        !session->work.graphs.contains(GraphKey(fingerprint))) {
      continue;
    }
    runner = session;
    most = held.grown;
  }
  return runner;
}

}  // namespace

void Record(ClusterState& state, const Worker& worker) {
  if (!state.jobs.records()) return;
  const absl::Duration at = state.clock->Monotonic() - state.begin;
  for (const Worker::Ran& ran : worker.load.ran) {
    const Session* const runner = RunnerOf(state, worker, ran.fingerprint);
    // The session has ended meanwhile, or an earlier coordinator had it.
    if (runner == nullptr) continue;
    v1::RecordedJob job;
    *job.mutable_at() = ToProtoDuration(at);
    job.set_tenant(runner->tenant);
    job.set_program(runner->program);
    job.set_fingerprint(absl::BytesToHexString(ran.fingerprint));
    job.set_worker_id(worker.id);
    job.set_runs(ran.runs);
    *job.mutable_device_time() = ToProtoDuration(ran.time);
    job.set_content_bytes(worker.load.graphs.at(ran.fingerprint).content_bytes);
    if (const SharedWork work =
            state.known.works.OfGraphTo(runner->tenant, ran.fingerprint)) {
      FillWork(*work, ran.runs, &job);
    }
    state.jobs.Add(std::move(job));
  }
}

absl::StatusOr<Page<v1::RecordedJob>> Recorded(ClusterState& state,
                                               const PageRange& range) {
  MutexLock lock(&state.mu);
  if (!state.jobs.records()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_RECORDING",
                     "the configuration's recorded_jobs is 0: nothing that ran "
                     "is kept");
  }
  return state.jobs.List(range);
}

}  // namespace djinn::coordinator::jobs
