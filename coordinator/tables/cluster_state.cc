#include "coordinator/tables/cluster_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/log/log.h"
#include "coordinator/tables/errors.h"

namespace djinn::coordinator {

void JobRecorder::Add(v1::RecordedJob job) {
  if (!records()) return;
  jobs_.emplace_hint(jobs_.end(),
                     absl::StrCat(absl::Dec(++last_, absl::kZeroPad20)),
                     std::move(job));
  if (jobs_.size() > max_jobs_) jobs_.erase(jobs_.begin());
}

Page<v1::RecordedJob> JobRecorder::List(const PageRange& range) const {
  const auto slice = Slice(jobs_, range);
  Page<v1::RecordedJob> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) page.items.push_back(entry->second);
  return page;
}

ClusterState::ClusterState(const Config* config, Tenants* tenants, Clock* clock,
                           RandomSource* random)
    : config(*config),
      tenants(tenants),
      clock(clock),
      random(random),
      begin(clock->Monotonic()),
      workers(config->worker_timeout),
      keys(random, config->lease_key_lifetime,
           2 * (config->lease_valid_for + config->lease_grace_period)),
      quotas(config->cohorts, config->reclaim_loss_limit),
      queue(config->line_patience),
      known(random->NonZero64()),
      jobs(config->recorded_jobs) {}

Session* ClusterState::FindSession(const StreamId& id) {
  Session* const session = sessions.Find(id.owner);
  return session != nullptr && session->link.number == id.stream ? session
                                                                 : nullptr;
}

Worker* ClusterState::FindWorker(const StreamId& id) {
  Worker* const worker = workers.Find(id.owner);
  return worker != nullptr && worker->link.number == id.stream ? worker
                                                               : nullptr;
}

absl::StatusOr<Session*> ClusterState::FindOpenSession(const StreamId& id) {
  Session* const session = FindSession(id);
  if (session == nullptr) return Replaced();
  if (!session->end.ok()) return session->end;
  return session;
}

absl::Status ClusterState::CheckTerm(uint64_t known_term) const {
  // A process that was not elected is the only one.
  return term > 0 && known_term > term ? NotLeader("") : absl::OkStatus();
}

absl::Status ClusterState::Replaced() {
  return MakeError(absl::StatusCode::kAborted, "SESSION_ATTACHED_ELSEWHERE",
                   "another stream attached to this session");
}

const Session* ClusterState::FindForOperator(const std::string& id) {
  const Session* const session = sessions.FindByPrefix(id);
  return session != nullptr &&
                 (id == session->id || id == log::ShortId(session->id))
             ? session
             : nullptr;
}

const Worker::Held* ClusterState::HeldFor(const Lease& lease) {
  const Worker* const worker = workers.Find(lease.worker_id);
  if (worker == nullptr) return nullptr;
  const auto found = worker->leases.held.find(lease.id);
  return found == worker->leases.held.end() ? nullptr : &found->second;
}

SharedWork ClusterState::WorkOf(const Session& session) const {
  return session.work.sum != nullptr
             ? session.work.sum
             : known.works.OfProgram(session.tenant, session.program);
}

}  // namespace djinn::coordinator
