// What the coordinator asks of single runs.
#include <algorithm>
#include <utility>

#include "common/net/proto_duration.h"
#include "gpu_worker/core/worker_core.h"

namespace djinn::worker {
namespace {

// So many questions are answered at a time, whatever the coordinator lists.
constexpr size_t kMaxQuestions = 64;

}  // namespace

std::optional<v1::RunPreemption> WorkerCore::GoesFirstOf(
    uint64_t queue_key, absl::Duration now) const {
  MutexLock lock(&queue_mu_);
  uint64_t outer = serving_;
  for (const GoingFirst& first : going_first_) {
    if (std::exchange(outer, first.key) != queue_key) continue;
    v1::RunPreemption preemption;
    const auto found = queued_.find(first.key);
    if (found != queued_.end()) {
      const Session& session = *found->second.session;
      preemption.set_tenant(session.tenant());
      preemption.set_session_id(session.peer()->session_id);
    }
    preemption.set_reason(first.reason);
    preemption.set_count(1);
    *preemption.mutable_time() =
        ToProtoDuration(std::max(now - first.since, absl::ZeroDuration()));
    return preemption;
  }
  return std::nullopt;
}

void WorkerCore::AnswerRuns(v1::WorkerState* state) const {
  const size_t count = std::min(runs_questions_.size(), kMaxQuestions);
  for (size_t i = 0; i < count; ++i) {
    v1::RunsAnswer* const answer = state->add_runs_answers();
    answer->set_question_id(runs_questions_[i].question_id());
    for (const auto& [lease_id, lease] : leases_.all()) {
      if (lease.claims.session_id() != runs_questions_[i].session_id()) {
        continue;
      }
      const auto found = sessions_.find(lease_id);
      if (found == sessions_.end()) continue;
      const absl::Duration now = clock_->Monotonic();
      v1::LeaseRuns* const runs = answer->add_leases();
      runs->set_lease_id(lease_id);
      found->second.session->DescribeRuns(runs);
      // It waits, and has got none since.
      runs->set_out_of_credit(lease.meter->waiting() &&
                              !lease.meter->HasCredit());
      if (auto wait = WaitOf(found->second, now); wait.has_value()) {
        *runs->mutable_wait() = *std::move(wait);
      }
      for (v1::RunRecord& run : *runs->mutable_runs()) {
        if (run.state() != v1::RunRecord::IN_SERVICE) continue;
        if (auto first = GoesFirstOf(found->second.queue_key, now)) {
          *run.mutable_goes_first() = *std::move(first);
        }
      }
    }
  }
}

}  // namespace djinn::worker
