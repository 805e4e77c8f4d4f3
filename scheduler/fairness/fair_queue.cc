#include "scheduler/fairness/fair_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace djinn::scheduler {
namespace {

double Charge(absl::Duration time) {
  return absl::ToDoubleNanoseconds(std::max(time, FairQueue::kLeastCharge));
}

}  // namespace

bool FairQueue::SessionBefore::operator()(const Session& a,
                                          const Session& b) const {
  if (a.priority != b.priority) return a.priority > b.priority;
  return std::tie(a.work.deadline, a.used, a.turn) <
         std::tie(b.work.deadline, b.used, b.turn);
}

bool FairQueue::TenantBefore::operator()(const Tenant& a,
                                         const Tenant& b) const {
  return std::tie(a.charged, a.turn) < std::tie(b.charged, b.turn);
}

void FairQueue::Join(uint64_t key, absl::string_view tenant_name, double weight,
                     int priority) {
  Forget();
  std::unique_ptr<Tenant>& tenant = tenants_[tenant_name];
  if (tenant == nullptr) tenant = std::make_unique<Tenant>();
  tenant->weight = weight;
  ++tenant->sessions;
  auto session = std::make_unique<Session>();
  session->key = key;
  session->tenant = tenant.get();
  session->priority = priority;
  sessions_[key] = std::move(session);
}

void FairQueue::Forget() {
  if (tenants_.size() < forget_at_) return;
  absl::erase_if(tenants_, [this](const auto& entry) {
    return entry.second->sessions == 0 && entry.second->charged <= start_;
  });
  forget_at_ = std::max(kMinForget, 2 * tenants_.size());
}

void FairQueue::Leave(uint64_t key) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session* const session = found->second.get();
  if (session->in_service) {
    session->left = true;
    return;
  }
  if (session->place != kNowhere) Withdraw(session);
  Erase(session);
}

void FairQueue::Erase(Session* session) {
  --session->tenant->sessions;
  sessions_.erase(session->key);
}

void FairQueue::SetWeight(absl::string_view tenant, double weight) {
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end() && found->second->sessions > 0) {
    found->second->weight = weight;
  }
}

void FairQueue::SetPriority(uint64_t key, int priority) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end() || found->second->priority == priority) return;
  Session* const session = found->second.get();
  // What it used says nothing among those of another priority.
  session->priority = priority;
  session->used = session->tenant->start[priority];
  if (session->place != kNowhere) session->tenant->waiting.Moved(session);
}

void FairQueue::Wait(Session* session, const Work& work) {
  Tenant* const tenant = session->tenant;
  session->work = work;
  session->used = std::max(session->used, tenant->start[session->priority]);
  session->turn = next_turn_++;
  const bool waits = !tenant->waiting.empty();
  tenant->waiting.Push(session);
  if (waits) return;
  tenant->charged = std::max(tenant->charged, start_);
  tenant->turn = session->turn;
  waiting_.Push(tenant);
}

void FairQueue::Withdraw(Session* session) {
  Tenant* const tenant = session->tenant;
  tenant->waiting.Remove(session);
  if (tenant->waiting.empty()) waiting_.Remove(tenant);
}

void FairQueue::MakeRunnable(uint64_t key, const Work& work) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session* const session = found->second.get();
  if (session->place != kNowhere) return;
  if (!session->in_service) return Wait(session, work);
  if (session->waits_again) return;
  session->waits_again = true;
  session->work = work;
}

uint64_t FairQueue::Take() {
  Tenant* const tenant = waiting_.top();
  Session* const session = tenant->waiting.top();
  start_ = std::max(start_, tenant->charged);
  double& start = tenant->start[session->priority];
  start = std::max(start, session->used);
  session->in_service = true;
  ++in_service_;
  session->charged = Charge(session->work.expected);
  session->used += session->charged;
  tenant->charged += session->charged / tenant->weight;
  tenant->waiting.Remove(session);
  if (tenant->waiting.empty()) {
    waiting_.Remove(tenant);
  } else {
    tenant->turn = next_turn_++;
    waiting_.Moved(tenant);
  }
  return session->key;
}

void FairQueue::Done(uint64_t key, absl::Duration used,
                     const std::optional<Work>& more) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session* const session = found->second.get();
  Tenant* const tenant = session->tenant;
  const double rest = Charge(used) - session->charged;
  session->used += rest;
  tenant->charged += rest / tenant->weight;
  if (tenant->place != kNowhere) waiting_.Moved(tenant);
  session->in_service = false;
  if (--in_service_ == 0 && waiting_.empty()) {
    start_ = std::max(start_, tenant->charged);
  }
  if (session->left) return Erase(session);
  const bool waits_again = std::exchange(session->waits_again, false);
  if (more.has_value()) {
    Wait(session, *more);
  } else if (waits_again) {
    Wait(session, session->work);
  }
}

}  // namespace djinn::scheduler
