#include "scheduler/fairness/fair_queue.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"

namespace djinn::scheduler {
namespace {

double ToCharge(absl::Duration time) {
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
  // Use in one priority is not comparable with use in another.
  session->priority = priority;
  session->used = session->tenant->start[priority];
  if (session->place != kNowhere) session->tenant->waiting.Moved(session);
  if (session->short_place != kNowhere) {
    session->tenant->waiting_short.Moved(session);
  }
}

void FairQueue::SetPace(uint64_t key, Pace pace) {
  const auto found = sessions_.find(key);
  if (found != sessions_.end()) found->second->pace = pace;
}

size_t FairQueue::session_count(absl::string_view tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second->sessions;
}

void FairQueue::Wait(Session* session, const Work& work) {
  Tenant* const tenant = session->tenant;
  session->work = work;
  session->used = std::max(session->used, tenant->start[session->priority]);
  session->turn = next_turn_++;
  const bool waits = !tenant->waiting.empty();
  tenant->waiting.Push(session);
  if (work.pace == Pace::kShort) tenant->waiting_short.Push(session);
  if (waits) return;
  tenant->charged = std::max(tenant->charged, start_);
  tenant->turn = session->turn;
  waiting_.Push(tenant);
}

bool FairQueue::WaitWith(Session* session, const Work& work) {
  Tenant* const tenant = session->tenant;
  session->work = work;
  tenant->waiting.Moved(session);
  const bool was_short = session->short_place != kNowhere;
  if (was_short) tenant->waiting_short.Remove(session);
  if (work.pace == Pace::kShort) tenant->waiting_short.Push(session);
  return !was_short && work.pace == Pace::kShort;
}

void FairQueue::Remove(Session* session) {
  session->tenant->waiting.Remove(session);
  if (session->short_place != kNowhere) {
    session->tenant->waiting_short.Remove(session);
  }
}

void FairQueue::Withdraw(Session* session) {
  Tenant* const tenant = session->tenant;
  Remove(session);
  if (tenant->waiting.empty()) waiting_.Remove(tenant);
}

bool FairQueue::MakeRunnable(uint64_t key, const Work& work) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return false;
  Session* const session = found->second.get();
  if (session->place != kNowhere) return WaitWith(session, work);
  if (!session->in_service) {
    Wait(session, work);
    return true;
  }
  session->waits_again = true;
  session->next = work;
  return false;
}

uint64_t FairQueue::Take() { return TakeNow(waiting_.top()->waiting.top()); }

uint64_t FairQueue::TakePreempting(Preemption why) {
  Tenant* const tenant = waiting_.top();
  return TakeNow(why == Preemption::kShort ? tenant->waiting_short.top()
                                           : tenant->waiting.top());
}

uint64_t FairQueue::TakeNow(Session* session) {
  start_ = std::max(start_, session->tenant->charged);
  session->uncontested = false;
  Serve(session);
  return session->key;
}

FairQueue::Batch FairQueue::FindBatch(uint64_t key,
                                      absl::FunctionRef<bool(uint64_t)> suits,
                                      size_t most) const {
  Batch batch;
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return batch;
  const Session& beside = *found->second;
  std::vector<const Session*> all;
  size_t looks = 0;
  for (const Tenant* const tenant : waiting_.items()) {
    for (const Session* const session : tenant->waiting.items()) {
      if (++looks <= kLooks && session->priority >= beside.priority &&
          suits(session->key)) {
        all.push_back(session);
      } else {
        batch.contested = true;
      }
      if (looks > kLooks) break;
    }
  }
  const auto is_ahead = [&](const Session* session) {
    const Tenant& tenant = *session->tenant;
    return &tenant != beside.tenant &&
           tenant.charged > start_ + tenant.turn_charge / tenant.weight;
  };
  const auto ahead =
      std::stable_partition(all.begin(), all.end(), std::not_fn(is_ahead));
  const auto before = [](const Session* a, const Session* b) {
    return a->tenant != b->tenant ? TenantBefore()(*a->tenant, *b->tenant)
                                  : SessionBefore()(*a, *b);
  };
  std::sort(all.begin(), ahead, before);
  std::sort(ahead, all.end(), before);
  const auto keeping_pace = static_cast<size_t>(ahead - all.begin());
  if (all.size() > most) batch.contested = true;
  if (batch.contested) all.resize(std::min(most, keeping_pace));
  for (size_t i = 0; i < all.size(); ++i) {
    batch.members.push_back({all[i]->key, i >= keeping_pace});
  }
  return batch;
}

bool FairQueue::TakeBeside(uint64_t key, bool contested) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return false;
  Session* const session = found->second.get();
  if (session->place == kNowhere) return false;
  session->uncontested = !contested;
  Serve(session);
  return true;
}

void FairQueue::Serve(Session* session) {
  Tenant* const tenant = session->tenant;
  if (tenant->in_service++ == 0) {
    tenant->turn_charge = 0;
    tenant->charged_before = tenant->charged;
  }
  double& start = tenant->start[session->priority];
  start = std::max(start, session->used);
  session->in_service = true;
  ++in_service_;
  if (session->work.pace != Pace::kUnknown) session->pace = session->work.pace;
  session->charged = ToCharge(session->work.expected);
  session->used += session->charged;
  tenant->charged += session->charged / tenant->weight;
  tenant->turn_charge += session->charged;
  Remove(session);
  if (tenant->waiting.empty()) {
    waiting_.Remove(tenant);
  } else {
    tenant->turn = next_turn_++;
    waiting_.Moved(tenant);
  }
}

void FairQueue::Done(uint64_t key, absl::Duration used,
                     const std::optional<Work>& more) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session* const session = found->second.get();
  Tenant* const tenant = session->tenant;
  ChargeStep(session, used);
  --tenant->in_service;
  if (session->uncontested) {
    const double ahead = start_ + tenant->turn_charge / tenant->weight;
    tenant->charged =
        std::max(tenant->charged_before, std::min(tenant->charged, ahead));
  }
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
    Wait(session, session->next);
  }
}

absl::Duration FairQueue::Ahead(uint64_t key) const {
  absl::Duration ahead;
  const auto found = sessions_.find(key);
  if (found == sessions_.end() || found->second->place == kNowhere) {
    return ahead;
  }
  const Session& session = *found->second;
  size_t looks = 0;
  for (const Session* const other : session.tenant->waiting.items()) {
    if (++looks > kLooks) return ahead;
    if (other != &session && SessionBefore()(*other, session)) {
      ahead += other->work.expected;
    }
  }
  for (const Tenant* const tenant : waiting_.items()) {
    if (++looks > kLooks) return ahead;
    if (tenant != session.tenant && TenantBefore()(*tenant, *session.tenant)) {
      ahead += tenant->waiting.top()->work.expected;
    }
  }
  return ahead;
}

void FairQueue::Charge(uint64_t key, absl::Duration used) {
  const auto found = sessions_.find(key);
  if (found != sessions_.end()) ChargeStep(found->second.get(), used);
}

void FairQueue::ChargeStep(Session* session, absl::Duration used) {
  Tenant* const tenant = session->tenant;
  const double rest = ToCharge(used) - session->charged;
  session->charged += rest;
  session->used += rest;
  tenant->charged += rest / tenant->weight;
  tenant->turn_charge += rest;
  if (tenant->place != kNowhere) waiting_.Moved(tenant);
}

FairQueue::Preemption FairQueue::MayPreempt(absl::Span<const uint64_t> keys,
                                            absl::Duration end) const {
  absl::InlinedVector<const Session*, 8> steps;
  for (const uint64_t key : keys) {
    const auto found = sessions_.find(key);
    if (found != sessions_.end()) steps.push_back(found->second.get());
  }
  if (steps.empty() || waiting_.empty()) return Preemption::kNone;
  const auto is_higher = [](const Session& session, const Session& step) {
    return session.priority > step.priority;
  };
  const auto is_hurried = [](const Session& session, const Session& step) {
    return session.tenant == step.tenant && session.priority == step.priority &&
           session.work.deadline < step.work.deadline &&
           (step.pace != Pace::kShort || session.work.pace == Pace::kShort);
  };
  const auto is_more_urgent = [&](const Session& session) {
    return absl::c_all_of(steps, [&](const Session* step) {
      return is_higher(session, *step) || is_hurried(session, *step);
    });
  };
  // Returns null where the tenant has no such session.
  const auto find_short = [&](const Tenant& tenant) -> const Session* {
    if (tenant.waiting_short.empty()) return nullptr;
    const Session* const session = tenant.waiting_short.top();
    const bool preempted_by =
        absl::c_all_of(steps, [session](const Session* step) {
          return session->priority == step->priority &&
                 step->pace == Pace::kLong;
        });
    return preempted_by ? session : nullptr;
  };
  const Tenant* const tenant = waiting_.top();
  const Session& next = *tenant->waiting.top();
  const bool is_fair = absl::c_all_of(steps, [&](const Session* step) {
    return tenant == step->tenant || tenant->charged <= step->tenant->charged;
  });
  if (is_fair && is_more_urgent(next)) {
    const bool higher = absl::c_all_of(
        steps, [&](const Session* step) { return is_higher(next, *step); });
    if (higher) return Preemption::kHigherPriority;
    if (next.work.deadline - next.work.expected < end) {
      return Preemption::kDeadline;
    }
  }
  if (is_fair && find_short(*tenant) != nullptr) return Preemption::kShort;
  const bool later = absl::c_any_of(waiting_.items(), [&](const Tenant* other) {
    return is_more_urgent(*other->waiting.top()) ||
           find_short(*other) != nullptr;
  });
  return later ? Preemption::kLater : Preemption::kNone;
}

}  // namespace djinn::scheduler
