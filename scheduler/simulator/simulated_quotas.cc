#include "scheduler/simulator/simulated_quotas.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace djinn::scheduler {
namespace {

constexpr Resource kMemory = Resource::kMemoryBytes;

bool HasQuota(const Quotas& quotas) {
  return std::any_of(quotas.begin(), quotas.end(),
                     [](const Quota& quota) { return quota.limited(); });
}

std::string RootOf(const std::string& cohort) {
  return cohort.substr(0, cohort.find('/'));
}

}  // namespace

SimulatedQuotas::SimulatedQuotas(const Trace& trace)
    : trace_(trace),
      asked_(trace.tenants.size()),
      losses_(absl::Seconds(trace.reclaim_loss_limit_seconds)),
      loans_(trace.tenants.size()) {
  std::vector<TenantQuota> tenants;
  std::vector<RateBudget::Tenant> rated;
  for (size_t i = 0; i < trace.tenants.size(); ++i) {
    const SimulatedTenant& tenant = trace.tenants[i];
    index_[tenant.name] = i;
    tenants.push_back(
        {tenant.name, tenant.cohort, tenant.weight, tenant.quotas});
    if (tenant.device_rate.has_value()) {
      rated.push_back(
          {tenant.name, tenant.cohort, tenant.weight, *tenant.device_rate});
      used_[tenant.name] = 0;
    }
    empty_ = empty_ && !HasQuota(tenant.quotas) && !tenant.device_rate;
    if (tenant.limit_bytes.has_value()) {
      asked_[i][static_cast<size_t>(kMemory)] =
          static_cast<int64_t>(*tenant.limit_bytes);
    }
  }
  for (const SimulatedJob& job : trace.jobs) {
    if (trace.tenants[job.tenant].limit_bytes.has_value()) continue;
    int64_t& asked = asked_[job.tenant][static_cast<size_t>(kMemory)];
    asked = std::max(asked, static_cast<int64_t>(job.state_bytes));
  }
  std::vector<CohortQuota> cohorts;
  std::vector<CohortRate> cohort_rates;
  for (const SimulatedCohort& cohort : trace.cohorts) {
    cohorts.push_back({cohort.name, cohort.weight, cohort.quotas});
    cohort_rates.push_back(
        {cohort.name, cohort.weight, cohort.device_rate.value_or(RateQuota())});
  }
  tree_.Configure(tenants, cohorts);
  rates_.Configure(std::move(rated), std::move(cohort_rates));
  used_before_ = used_;
}

std::vector<double> SimulatedQuotas::Precedence(
    const std::string& tenant) const {
  if (empty_) return {};
  return tree_.Precedence(tenant, asked_[index_.at(tenant)]);
}

void SimulatedQuotas::Take(size_t tenant, absl::Duration now) {
  if (empty_) return;
  PassTime(now);
  tree_.Take(trace_.tenants[tenant].name, asked_[tenant]);
}

void SimulatedQuotas::Give(size_t tenant, absl::Duration now) {
  if (empty_) return;
  PassTime(now);
  tree_.Give(trace_.tenants[tenant].name, asked_[tenant]);
}

void SimulatedQuotas::PassTime(absl::Duration now) {
  const double seconds = absl::ToDoubleSeconds(now - passed_);
  if (seconds <= 0) return;
  passed_ = now;
  for (size_t i = 0; i < loans_.size(); ++i) {
    const SimulatedTenant& tenant = trace_.tenants[i];
    if (tenant.cohort.empty()) continue;
    loans_[i].borrowed_byte_seconds +=
        seconds * static_cast<double>(tree_.Borrowed(tenant.name, kMemory));
    loans_[i].lent_byte_seconds +=
        seconds * static_cast<double>(tree_.Lent(tenant.name, kMemory));
  }
}

double SimulatedQuotas::Grant(size_t tenant) {
  const std::string& name = trace_.tenants[tenant].name;
  double* const allowance = rates_.Allowance(name);
  const double granted = std::min(rates_.Slice(name), *allowance);
  if (granted <= 0) return 0;
  *allowance -= granted;
  return granted;
}

void SimulatedQuotas::Owe(size_t tenant, double seconds) {
  *rates_.Allowance(trace_.tenants[tenant].name) -= seconds;
}

void SimulatedQuotas::NoteWaiting(size_t tenant, absl::Duration now) {
  rates_.NoteWaiting(trace_.tenants[tenant].name, now);
}

void SimulatedQuotas::NoteUsed(size_t tenant, double seconds) {
  used_[trace_.tenants[tenant].name] += seconds;
}

void SimulatedQuotas::AdvanceRates(absl::Duration now) {
  rates_.Advance(now, used_);
  CountRates(absl::ToDoubleSeconds(now - advanced_));
  advanced_ = now;
  used_before_ = used_;
}

void SimulatedQuotas::CountRates(double seconds) {
  // Amounts that could be borrowed under each root, and that were used.
  struct Root {
    double could = 0;
    double did = 0;
  };
  absl::flat_hash_map<std::string, Root> roots;
  for (size_t i = 0; i < loans_.size(); ++i) {
    const SimulatedTenant& tenant = trace_.tenants[i];
    if (!rated(i) || tenant.cohort.empty()) continue;
    const double could = seconds * rates_.ShareOf(tenant.name).borrowed;
    const double used = used_.at(tenant.name) - used_before_.at(tenant.name);
    const double did =
        std::clamp(used - seconds * tenant.device_rate->nominal, 0.0, could);
    loans_[i].borrowed_device_seconds += did;
    Root& root = roots[RootOf(tenant.cohort)];
    root.could += could;
    root.did += did;
  }
  for (size_t i = 0; i < loans_.size(); ++i) {
    const SimulatedTenant& tenant = trace_.tenants[i];
    if (!rated(i) || tenant.cohort.empty()) continue;
    const Root& root = roots.at(RootOf(tenant.cohort));
    if (root.could <= 0) continue;
    loans_[i].lent_device_seconds +=
        seconds * rates_.ShareOf(tenant.name).lent * root.did / root.could;
  }
}

const std::vector<SimulatedQuotas::Loans>& SimulatedQuotas::Sum(
    absl::Duration now) {
  PassTime(now);
  return loans_;
}

}  // namespace djinn::scheduler
