// Quotas: which leases fit, and how fast device time and bytes are granted.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/retry_after.h"
#include "common/status_macros.h"
#include "coordinator/cluster.h"
#include "coordinator/configured_quotas.h"
#include "coordinator/quota_trial.h"

namespace djinn::coordinator {

using scheduler::RateBudget;

absl::Status Cluster::QuotaExceeded(
    const Tenant& tenant, const scheduler::QuotaTree::Breach& breach) {
  const std::string resource(scheduler::ResourceName(breach.resource));
  return MakeError(
      absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
      absl::StrCat("tenant ", tenant.name, " may have ", breach.limit, " ",
                   resource, breach.may_wait ? " for now" : "", ", has ",
                   breach.used, " and asks for ", breach.asked, " more"),
      {{"resource", resource},
       {"limit", absl::StrCat(breach.limit)},
       {"used", absl::StrCat(breach.used)},
       {"asked", absl::StrCat(breach.asked)}});
}

void Cluster::ConfigureQuotas() {
  ConfiguredQuotas configured = QuotasOf(*tenants_->all(), cohorts_);
  for (const scheduler::TenantQuota& tenant : configured.tenants) {
    line_.SetWeight(tenant.tenant, tenant.weight);
  }
  quotas_.Configure(configured.tenants, configured.cohorts);
  device_rates_.Configure(std::move(configured.device_rates.tenants),
                          std::move(configured.device_rates.cohorts));
  byte_rates_.Configure(std::move(configured.byte_rates.tenants),
                        std::move(configured.byte_rates.cohorts));
}

absl::StatusOr<v1::TryQuotaResponse> Cluster::TryQuota(
    const v1::TryQuotaRequest& request) {
  MutexLock lock(&mu_);
  const Tenants::Snapshot tenants = tenants_->all();
  const auto tenant = tenants->find(request.tenant());
  if (tenant == tenants->end()) {
    return MakeError(absl::StatusCode::kNotFound, "TENANT_UNKNOWN",
                     absl::StrCat("there is no \"", request.tenant(), "\""));
  }
  DJINN_RETURN_IF_ERROR(CheckTriedQuota(request, *tenant->second));
  const ConfiguredQuotas configured = QuotasOf(*tenants, cohorts_);
  if (request.resource() == kDeviceRate) {
    return TryRate(request, *tenant->second, configured.device_rates,
                   device_rates_, clock_->Monotonic());
  }
  if (request.resource() == kByteRate) {
    return TryRate(request, *tenant->second, configured.byte_rates, byte_rates_,
                   clock_->Monotonic());
  }
  return TryAmount(request, configured, quotas_);
}

Lease* Cluster::AddLease(Lease lease) {
  // One of two of a virtual device, of which one will go, counts.
  const auto tenant = tenants_->Find(lease.tenant);
  if (tenant != nullptr && !lease.migrating()) {
    lease.quota = LeaseQuota(*tenant);
  }
  quotas_.Take(lease.tenant, lease.quota);
  return leases_.Add(std::move(lease));
}

absl::Status Cluster::LimitObstacle(const Tenant& tenant,
                                    uint64_t needed_bytes) {
  const uint64_t limit = LeaseMemory(tenant);
  if (needed_bytes <= limit) return absl::OkStatus();
  const std::string resource(
      scheduler::ResourceName(scheduler::Resource::kMemoryBytes));
  return MakeError(
      absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
      absl::StrCat("a lease of tenant ", tenant.name, " may have ", limit, " ",
                   resource, ", has 0 and asks for ", needed_bytes, " more"),
      {{"resource", resource},
       {"limit", absl::StrCat(limit)},
       {"used", "0"},
       {"asked", absl::StrCat(needed_bytes)}});
}

absl::Status Cluster::QuotaObstacle(const Tenant& tenant) const {
  const scheduler::Amounts asked = LeaseQuota(tenant);
  const auto breach = quotas_.Check(tenant.name, asked);
  if (!breach.has_value() || quotas_.Reclaim(tenant.name, asked).has_value()) {
    return absl::OkStatus();
  }
  return QuotaExceeded(tenant, *breach);
}

absl::Duration Cluster::UntilQuotaIsFree(const std::string& tenant) {
  absl::Duration next = absl::InfiniteDuration();
  for (const Lease* lease : leases_.OfTenant(tenant)) {
    const Session* const session = sessions_.Find(lease->session_id);
    if (session->stream == 0) next = std::min(next, session->deadline);
  }
  for (const auto& [id, restored] : restored_) {
    if (restored.tenant == tenant) next = std::min(next, restored_until_);
  }
  return next - clock_->Monotonic();
}

bool Cluster::MayFitQuota(MemberId device, const Tenant& tenant,
                          Session* session, Wakes* wakes) {
  PendingLease& pending = session->pending.at(device);
  absl::Status why = LimitObstacle(tenant, pending.needed_bytes);
  bool may_wait = false;
  if (why.ok()) {
    const scheduler::Amounts asked = LeaseQuota(tenant);
    const auto breach = quotas_.Check(tenant.name, asked);
    if (!breach.has_value() ||
        quotas_.Reclaim(tenant.name, asked).has_value()) {
      return true;
    }
    why = QuotaExceeded(tenant, *breach);
    may_wait = breach->may_wait;
    // Alone it would fit.
    if (!may_wait && breach->asked <= breach->limit) {
      why = WithRetryAfter(std::move(why), UntilQuotaIsFree(tenant.name));
    }
  }
  metrics_.attempts.Add({"quota_exceeded"});
  if (may_wait) {
    // No worker was looked for.
    pending.decision = {};
    LeaveUnplaced(device, why, session, wakes);
    return false;
  }
  LeaveLine(&pending);
  session->pending.erase(device);
  Refuse(why, device, session, wakes);
  return false;
}

CreditLedger::Rates Cluster::RatesOf(const std::string& tenant) {
  const auto rate_of =
      [&](RateBudget* budget) -> std::optional<CreditLedger::Rate> {
    double* const allowance = budget->Allowance(tenant);
    if (allowance == nullptr) return std::nullopt;
    return CreditLedger::Rate{allowance, budget->Slice(tenant),
                              budget->Most(tenant)};
  };
  return {.device_time = rate_of(&device_rates_),
          .bytes = rate_of(&byte_rates_)};
}

CreditLedger::Rates Cluster::RatesOfLease(const std::string& lease_id) {
  const CreditLedger::Account* const account = ledger_.Find(lease_id);
  return account == nullptr ? CreditLedger::Rates() : RatesOf(account->tenant);
}

void Cluster::SettleWorker(const std::string& worker_id) {
  ledger_.SettleWorker(worker_id, [this](const std::string& tenant)
                                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                                        return RatesOf(tenant);
                                      });
}

bool Cluster::TopUp(const std::string& lease_id, const Tenant& tenant) {
  return ledger_.TopUp(lease_id, tenant.credits, clock_->Now(),
                       RatesOf(tenant.name));
}

void Cluster::AdvanceRates(Wakes* wakes) {
  const absl::Duration now = clock_->Monotonic();
  if (device_rates_.empty() && byte_rates_.empty()) return;
  if (!device_rates_.Due(now) && !byte_rates_.Due(now)) return;
  std::map<std::string, double> seconds, bytes;
  for (const auto& [name, tenant] : ledger_.tenants()) {
    seconds[name] = absl::ToDoubleSeconds(tenant.used.device_time);
    bytes[name] = static_cast<double>(tenant.used.bytes);
  }
  std::vector<Lease*> waiting;
  for (const auto& [id, lease] : leases_.all()) {
    if (!lease->out_of_credit) continue;
    waiting.push_back(lease.get());
    const CreditLedger::Account* const account = ledger_.Find(id);
    if (account == nullptr) continue;
    // Of which of the two.
    if (account->billed.device_time >= account->granted.device_time) {
      device_rates_.NoteWaiting(lease->tenant, now);
    }
    if (account->billed.bytes >= account->granted.bytes) {
      byte_rates_.NoteWaiting(lease->tenant, now);
    }
  }
  device_rates_.Advance(now, seconds);
  byte_rates_.Advance(now, bytes);
  for (Lease* lease : waiting) {
    const auto tenant = tenants_->Find(lease->tenant);
    if (tenant == nullptr ||
        !(tenant->credits.device_time_rated || tenant->credits.bytes_rated) ||
        !TopUp(lease->id, *tenant)) {
      continue;
    }
    lease->reissue_time = absl::InfinitePast();
    Touch(workers_.Find(lease->worker_id), wakes);
  }
}

void Cluster::DescribeQuota(const Tenant& tenant, v1::TenantInfo* info) {
  info->set_cohort(tenant.cohort);
  info->set_weighted_share(std::max(
      {quotas_.Share(tenant.name), device_rates_.WeightedShareOf(tenant.name),
       byte_rates_.WeightedShareOf(tenant.name)}));
  for (size_t i = 0; i < scheduler::kResources; ++i) {
    if (!tenant.quotas[i].limited()) continue;
    *info->add_quotas() =
        DescribeAmount(quotas_, tenant.name,
                       static_cast<scheduler::Resource>(i), tenant.quotas[i]);
  }
  const auto add_rate = [&](const char* resource,
                            const std::optional<scheduler::RateQuota>& rate,
                            const RateBudget& budget) {
    if (!rate.has_value()) return;
    *info->add_quotas() =
        DescribeRate(resource, *rate, budget.RateOf(tenant.name),
                     budget.ShareOf(tenant.name));
  };
  add_rate(kDeviceRate, tenant.device_rate, device_rates_);
  add_rate(kByteRate, tenant.byte_rate, byte_rates_);
}

}  // namespace djinn::coordinator
