// What a session's next message waits for, and behind whom.
#include <algorithm>

#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "gpu_worker/core/worker_core.h"
#include "scheduler/fairness/deadline_rule.h"

namespace djinn::worker {

std::optional<v1::MessageWait> WorkerCore::WaitOf(const Held& held,
                                                  absl::Duration now) const {
  std::optional<v1::MessageWait> wait = held.session->wait();
  if (!wait.has_value() || wait->what() != v1::MessageWait::TURN) return wait;
  MutexLock lock(&queue_mu_);
  const auto found = queued_.find(held.queue_key);
  // It has its turn by now, or lacks credit for one.
  if (found == queued_.end() ||
      found->second.waits_since == absl::InfiniteDuration()) {
    return std::nullopt;
  }
  absl::Duration since = found->second.waits_since;
  if (awaits_company_since_.has_value() && held.session->fast_run_next()) {
    wait->set_what(v1::MessageWait::COMPANY);
    since = std::max(since, *awaits_company_since_);
    *wait->mutable_waited() =
        ToProtoDuration(std::max(now - since, absl::ZeroDuration()));
    return wait;
  }
  *wait->mutable_waited() =
      ToProtoDuration(std::max(now - since, absl::ZeroDuration()));
  const absl::Duration ahead =
      scheduler::Ahead(queue_, held.queue_key, InService(), now);
  if (ahead > absl::ZeroDuration()) {
    *wait->mutable_ahead() = ToProtoDuration(ahead);
  }
  const auto served =
      queued_.find(going_first_.empty() ? serving_ : going_first_.back().key);
  if (served != queued_.end()) {
    const Session& session = *served->second.session;
    wait->set_served_tenant(session.tenant());
    wait->set_served_session_id(log::ShortId(session.session_id()));
  }
  return wait;
}

}  // namespace djinn::worker
