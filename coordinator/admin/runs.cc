#include "coordinator/admin/runs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/run_gate.h"
#include "coordinator/admin/run_name.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/run_inquiries.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator::runs {
namespace {

// Asks the workers on which the session has leases: those of one member if
// `device` is set. Does not call `done` if it returns an error.
absl::Status Ask(ClusterState& state, const std::string& id,
                 const std::optional<MemberId>& device, RunInquiries::Done done)
    ABSL_LOCKS_EXCLUDED(state.mu) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  if (state.stopping) {
    return MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                     "the coordinator stops");
  }
  const Session* const session = state.FindForOperator(id);
  if (session == nullptr) return SessionUnknown(id);
  std::map<std::string, Worker*> workers;
  for (const Lease* lease : state.leases.OfSession(session->id)) {
    if (device.has_value() && lease->device != *device) continue;
    workers.emplace(lease->worker_id, state.workers.Find(lease->worker_id));
  }
  if (workers.empty()) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "NO_LEASE",
        absl::StrCat("session ", log::ShortId(session->id), " has no lease",
                     device.has_value() ? " for this virtual device" : "",
                     ", and so no runs"));
  }
  std::vector<RunInquiries::Asked> asked;
  for (const auto& [worker_id, worker] : workers) {
    asked.push_back({worker_id, worker->usable()});
  }
  DJINN_RETURN_IF_ERROR(state.inquiries.Ask(
      session->id, asked, state.clock->Monotonic(), std::move(done), &wakes));
  for (const auto& [worker_id, worker] : workers) {
    notifications::Touch(worker, &wakes);
  }
  return absl::OkStatus();
}

void DescribeRun(ClusterState& state, const v1::RunRecord& record,
                 const v1::LeaseRuns& of_lease, const Lease& lease,
                 v1::RunInfo* run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  run->set_run(RunNameOf(lease.device, record.number()));
  run->set_session_id(log::ShortId(lease.session_id));
  run->set_tenant(lease.tenant);
  run->set_virtual_device(lease.device.virtual_device);
  run->set_member(lease.device.member);
  run->set_lease_id(lease.id);
  run->set_worker_id(lease.worker_id);
  *run->mutable_record() = record;
  v1::PlacementGate gate;
  if (DescribeRunGate(
          record,
          {.lease = &of_lease,
           .tenant = lease.tenant,
           .credit_unblocked_by = explain::CreditUnblockedBy(state, lease)},
          &gate)) {
    *run->mutable_gate() = std::move(gate);
  }
}

// Returns the runs of leases that still exist, or the failure of the first
// worker if all workers failed.
absl::StatusOr<v1::ListRunsResponse> Gather(
    ClusterState& state, const std::string& id,
    const RunInquiries::Answers& answers)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const Session* const session = state.FindForOperator(id);
  if (session == nullptr) return SessionUnknown(id);
  v1::ListRunsResponse response;
  absl::Status silent;
  for (const auto& [worker_id, answer] : answers) {
    if (!answer.ok()) {
      if (silent.ok()) silent = answer.status();
      v1::SilentWorker* const worker = response.add_silent_workers();
      worker->set_worker_id(worker_id);
      worker->set_reason(ErrorReason(answer.status()));
      worker->set_message(std::string(answer.status().message()));
      continue;
    }
    for (const v1::LeaseRuns& of_lease : answer->leases()) {
      // Believes a worker only about its own leases of the session in question.
      const Lease* const lease = state.leases.Find(of_lease.lease_id());
      if (lease == nullptr || lease->worker_id != worker_id ||
          lease->session_id != session->id) {
        continue;
      }
      response.set_more_waiting(response.more_waiting() +
                                of_lease.more_waiting());
      for (const v1::RunRecord& record : of_lease.runs()) {
        DescribeRun(state, record, of_lease, *lease, response.add_runs());
      }
    }
  }
  if (response.silent_workers_size() == static_cast<int>(answers.size())) {
    return silent;
  }
  std::stable_sort(response.mutable_runs()->pointer_begin(),
                   response.mutable_runs()->pointer_end(),
                   [](const v1::RunInfo* a, const v1::RunInfo* b) {
                     const auto key = [](const v1::RunInfo& run) {
                       return std::make_tuple(run.virtual_device(),
                                              run.member(), run.lease_id(),
                                              run.record().number());
                     };
                     return key(*a) < key(*b);
                   });
  return response;
}

// Returns the explanation of the run that `name` means; `text` is the name as
// the operator wrote it, for errors.
absl::StatusOr<v1::RunExplanation> ExplainFound(
    ClusterState& state, const std::string& id, const RunName& name,
    const std::string& text, const RunInquiries::Answers& answers)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  DJINN_ASSIGN_OR_RETURN(v1::ListRunsResponse all, Gather(state, id, answers));
  std::vector<v1::RunInfo*> found;
  for (v1::RunInfo& run : *all.mutable_runs()) {
    const MemberId device{run.virtual_device(), run.member()};
    if (run.record().number() == name.number &&
        name.device.value_or(device) == device) {
      found.push_back(&run);
    }
  }
  const Session* const session = state.FindForOperator(id);
  if (session == nullptr) return SessionUnknown(id);
  const std::string short_id = log::ShortId(session->id);
  if (found.size() > 1) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "RUN_AMBIGUOUS",
        absl::StrCat(
            "session ", short_id, " has several runs ", name.number, ": ",
            absl::StrJoin(found, ", ",
                          [](std::string* out, const v1::RunInfo* run) {
                            out->append(run->run());
                          })));
  }
  if (found.empty()) {
    std::string silent;
    for (const v1::SilentWorker& worker : all.silent_workers()) {
      absl::StrAppend(&silent, "; worker ", worker.worker_id(),
                      " does not answer");
    }
    return MakeError(
        absl::StatusCode::kNotFound, "RUN_UNKNOWN",
        absl::StrCat("session ", short_id, " has no run ", text,
                     " that is remembered: of each device the last 16 that are "
                     "over are, and the first 16 that wait",
                     silent));
  }
  v1::RunExplanation explanation;
  *explanation.mutable_run() = std::move(*found.front());
  line::Places places;
  for (v1::DeviceExplanation& device :
       explain::ExplainDevices(state, *session, &places)) {
    if (device.virtual_device() == explanation.run().virtual_device() &&
        device.member() == explanation.run().member()) {
      *explanation.mutable_device() = std::move(device);
    }
  }
  return explanation;
}

}  // namespace

void List(ClusterState& state, const std::string& id, ListDone done) {
  const absl::Status asked =
      Ask(state, id, std::nullopt,
          [&state, id, done](const RunInquiries::Answers& answers) {
            absl::StatusOr<v1::ListRunsResponse> response;
            {
              MutexLock lock(&state.mu);
              response = Gather(state, id, answers);
            }
            done(std::move(response));
          });
  if (!asked.ok()) done(asked);
}

void Explain(ClusterState& state, const v1::ExplainRunRequest& request,
             ExplainDone done) {
  const absl::StatusOr<RunName> name = ParseRunName(request.run());
  if (!name.ok()) return done(name.status());
  const absl::Status asked =
      Ask(state, request.session_id(), name->device,
          [&state, done, request,
           name = *name](const RunInquiries::Answers& answers) {
            absl::StatusOr<v1::RunExplanation> explanation;
            {
              MutexLock lock(&state.mu);
              explanation = ExplainFound(state, request.session_id(), name,
                                         request.run(), answers);
            }
            done(std::move(explanation));
          });
  if (!asked.ok()) done(asked);
}

}  // namespace djinn::coordinator::runs
