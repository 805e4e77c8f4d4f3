#include "scheduler/quota/rate_budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace djinn::scheduler {
namespace {

// Time after which a rate has half its weight.
constexpr absl::Duration kHalfLife = absl::Seconds(2);
// A tenant that waited for credit this recently counts as wanting more.
constexpr absl::Duration kMemory = absl::Seconds(5);
// Factor by which a lender keeps more than it recently used, so that its use
// may grow.
constexpr double kHeadroom = 1.25;

}  // namespace

double RateBudget::Full(const State& state) const {
  const double rate = std::max(state.share.own + state.share.borrowed,
                               state.tenant.quota.nominal);
  return std::max(absl::ToDoubleSeconds(kBurst) * rate, min_slice_);
}

void RateBudget::Configure(std::vector<Tenant> tenants,
                           std::vector<CohortRate> cohorts) {
  cohorts_ = std::move(cohorts);
  auto before = std::exchange(states_, {});
  for (Tenant& tenant : tenants) {
    const std::string name = tenant.name;
    const auto old = before.find(name);
    State& state = states_[name];
    if (old != before.end()) state = std::move(old->second);
    state.tenant = std::move(tenant);
    if (old == before.end()) state.allowance = Full(state);
  }
}

RateDemand RateBudget::DemandOf(const State& state, absl::Duration now) {
  RateDemand demand{.cohort = state.tenant.cohort,
                    .quota = state.tenant.quota,
                    .weight = state.tenant.weight};
  if (now - state.waited > kMemory) demand.demand = kHeadroom * state.rate;
  return demand;
}

std::map<std::string, RateShare> RateBudget::Try(const Tenant& changed,
                                                 absl::Duration now) const {
  return Try(changed, /*wants_all=*/!states_.contains(changed.name), now);
}

RateShare RateBudget::TryAll(const Tenant& changed, absl::Duration now) const {
  return Try(changed, /*wants_all=*/true, now).at(changed.name);
}

std::map<std::string, RateShare> RateBudget::Try(const Tenant& changed,
                                                 bool wants_all,
                                                 absl::Duration now) const {
  std::map<std::string, RateDemand> demands;
  for (const auto& [name, state] : states_) {
    demands[name] = DemandOf(state, now);
  }
  RateDemand& own = demands[changed.name];
  own.cohort = changed.cohort;
  own.quota = changed.quota;
  own.weight = changed.weight;
  if (wants_all) own.demand = std::numeric_limits<double>::infinity();
  std::vector<RateDemand> in_order;
  for (const auto& [name, demand] : demands) in_order.push_back(demand);
  const std::vector<RateShare> shares = ShareRates(in_order, cohorts_);
  std::map<std::string, RateShare> by_name;
  auto share = shares.begin();
  for (const auto& [name, demand] : demands) by_name[name] = *share++;
  return by_name;
}

void RateBudget::NoteWaiting(const std::string& tenant, absl::Duration now) {
  const auto found = states_.find(tenant);
  if (found != states_.end()) found->second.waited = now;
}

void RateBudget::Advance(absl::Duration now,
                         const std::map<std::string, double>& used) {
  const absl::Duration passed =
      last_ == -absl::InfiniteDuration() ? absl::ZeroDuration() : now - last_;
  last_ = now;
  std::vector<RateDemand> demands;
  for (auto& [name, state] : states_) {
    const auto found = used.find(name);
    const double total = found == used.end() ? 0 : found->second;
    if (passed > absl::ZeroDuration() && state.known) {
      const double fade = std::exp2(-absl::FDivDuration(passed, kHalfLife));
      state.rate = fade * state.rate + (1 - fade) * (total - state.used) /
                                           absl::ToDoubleSeconds(passed);
    }
    state.used = total;
    state.known = true;
    demands.push_back(DemandOf(state, now));
  }
  const std::vector<RateShare> shares = ShareRates(demands, cohorts_);
  auto share = shares.begin();
  for (auto& [name, state] : states_) {
    state.share = *share++;
    // Includes the tenant's own unused rate that no other tenant borrows, in
    // case it begins to use it.
    const double rate =
        state.tenant.quota.nominal - state.share.lent + state.share.borrowed;
    state.allowance = std::min(
        state.allowance + absl::ToDoubleSeconds(passed) * rate, Full(state));
  }
}

double* RateBudget::Allowance(const std::string& tenant) {
  const auto found = states_.find(tenant);
  return found == states_.end() ? nullptr : &found->second.allowance;
}

double RateBudget::Most(const std::string& tenant) const {
  const auto found = states_.find(tenant);
  return found == states_.end() ? 0 : Full(found->second);
}

double RateBudget::Slice(const std::string& tenant) const {
  const auto found = states_.find(tenant);
  if (found == states_.end()) return 0;
  return std::clamp(Full(found->second) / 10, min_slice_, max_slice_);
}

RateShare RateBudget::ShareOf(const std::string& tenant) const {
  const auto found = states_.find(tenant);
  return found == states_.end() ? RateShare() : found->second.share;
}

double RateBudget::WeightedShareOf(const std::string& tenant) const {
  const auto found = states_.find(tenant);
  if (found == states_.end()) return 0;
  const State& state = found->second;
  return state.share.lendable > 0
             ? state.share.borrowed / state.share.lendable / state.tenant.weight
             : 0;
}

double RateBudget::RateOf(const std::string& tenant) const {
  const auto found = states_.find(tenant);
  return found == states_.end() ? 0 : found->second.rate;
}

}  // namespace djinn::scheduler
