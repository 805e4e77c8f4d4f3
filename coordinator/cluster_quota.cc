// Quotas: which leases fit, who gives back what is borrowed, and how fast
// device time and bytes are granted.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

absl::Status Exceeded(const Tenant& tenant,
                      const scheduler::QuotaTree::Breach& breach) {
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

}  // namespace

void Cluster::ConfigureQuotas() {
  std::vector<scheduler::TenantQuota> quotas;
  std::vector<RateBudget::Tenant> device_rates, byte_rates;
  const Tenants::Snapshot tenants = tenants_->all();
  for (const auto& [name, tenant] : *tenants) {
    quotas.push_back({name, tenant->cohort, tenant->weight, tenant->quotas});
    line_.SetWeight(name, tenant->weight);
    const auto add = [&](const std::optional<scheduler::RateQuota>& quota,
                         std::vector<RateBudget::Tenant>* rates) {
      if (!quota.has_value()) return;
      rates->push_back({name, tenant->cohort, tenant->weight, *quota});
    };
    add(tenant->device_rate, &device_rates);
    add(tenant->byte_rate, &byte_rates);
  }
  quotas_.Configure(quotas);
  device_rates_.Configure(std::move(device_rates));
  byte_rates_.Configure(std::move(byte_rates));
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

absl::Status Cluster::QuotaObstacle(const Tenant& tenant) const {
  const scheduler::Amounts asked = LeaseQuota(tenant);
  const auto breach = quotas_.Check(tenant.name, asked);
  if (!breach.has_value() || quotas_.Reclaim(tenant.name, asked).has_value()) {
    return absl::OkStatus();
  }
  return Exceeded(tenant, *breach);
}

bool Cluster::MayFitQuota(MemberId device, const Tenant& tenant,
                          Session* session, Wakes* wakes) {
  const scheduler::Amounts asked = LeaseQuota(tenant);
  const auto breach = quotas_.Check(tenant.name, asked);
  if (!breach.has_value() || quotas_.Reclaim(tenant.name, asked).has_value()) {
    return true;
  }
  const absl::Status why = Exceeded(tenant, *breach);
  metrics_.attempts.Add({"quota_exceeded"});
  if (breach->may_wait) {
    // No worker was looked for.
    session->pending.at(device).decision = {};
    LeaveUnplaced(device, why, session, wakes);
    return false;
  }
  LeaveLine(&session->pending.at(device));
  session->pending.erase(device);
  Refuse(why, device, session, wakes);
  return false;
}

absl::Status Cluster::ReclaimQuota(const Tenant& tenant, Wakes* wakes) {
  const scheduler::Amounts asked = LeaseQuota(tenant);
  while (const auto breach = quotas_.Check(tenant.name, asked)) {
    const auto from = quotas_.Reclaim(tenant.name, asked);
    if (!from.has_value() || !EvictFrom(*from, wakes)) {
      return Exceeded(tenant, *breach);
    }
    metrics_.preemptions.Add({metrics_.tenants.For(tenant.name),
                              metrics_.tenants.For(*from), "reclaim_nominal"});
    log::Warning("quota reclaimed", {{"tenant", tenant.name}, {"from", *from}});
  }
  return absl::OkStatus();
}

bool Cluster::EvictFrom(const std::string& tenant, Wakes* wakes) {
  // The least urgent; of those the one that loses least device time, with all
  // that ends with it; of those the youngest.
  const Lease* victim = nullptr;
  std::tuple<v1::PriorityClass, absl::Duration, absl::Duration> least;
  for (const auto& [id, lease] : leases_.all()) {
    // One that a virtual device goes to holds nothing that could be reclaimed,
    // as long as it can stay where it is.
    if (lease->tenant != tenant ||
        (lease->migrating() && leases_.Find(lease->migrates_from) != nullptr)) {
      continue;
    }
    absl::Duration lost;
    for (const Lease* other : leases_.OfSession(lease->session_id)) {
      if (other->worker_id != lease->worker_id) continue;
      const CreditLedger::Account* const account = ledger_.Find(other->id);
      if (account != nullptr) lost += account->billed.device_time;
    }
    const v1::Urgency& urgency = sessions_.Find(lease->session_id)->urgency;
    const std::tuple key(EffectiveClass(urgency.priority_class()), lost,
                         clock_->Monotonic() - lease->created);
    if (victim != nullptr && key >= least) continue;
    victim = lease.get();
    least = key;
  }
  if (victim == nullptr) return false;
  const std::string session_id = victim->session_id;
  Worker* const worker = workers_.Find(victim->worker_id);
  // A worker drops sessions, not leases.
  std::vector<std::string> ends;
  for (const Lease* lease : leases_.OfSession(session_id)) {
    if (lease->worker_id == worker->id) ends.push_back(lease->id);
  }
  for (const std::string& lease_id : ends) {
    Lease* const lease = leases_.Find(lease_id);
    if (lease == nullptr) continue;
    // Its way elsewhere ends with it: what it held there would be borrowed on.
    if (Lease* const to = leases_.FindMigration(*lease)) {
      DropMigration(
          to,
          MakeError(absl::StatusCode::kResourceExhausted, "QUOTA_RECLAIMED",
                    "tenant " + tenant + " gives back what it borrowed"),
          wakes);
    }
    EndLease(lease, "QUOTA_RECLAIMED", wakes);
  }
  Drop(session_id, worker, wakes);
  return true;
}

bool Cluster::TopUp(const std::string& lease_id, const Tenant& tenant) {
  const auto rate_of =
      [&](RateBudget* budget) -> std::optional<CreditLedger::Rate> {
    double* const allowance = budget->Allowance(tenant.name);
    if (allowance == nullptr) return std::nullopt;
    return CreditLedger::Rate{allowance, budget->Slice(tenant.name)};
  };
  return ledger_.TopUp(
      lease_id, tenant.credits, clock_->Now(),
      {.device_time = rate_of(&device_rates_), .bytes = rate_of(&byte_rates_)});
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
  const auto add = [info](absl::string_view resource, const auto& quota) {
    v1::ResourceQuota* const added = info->add_quotas();
    added->set_resource(std::string(resource));
    added->set_nominal(static_cast<double>(quota.nominal));
    if (quota.borrowing_limit.has_value()) {
      added->set_borrowing_limit(static_cast<double>(*quota.borrowing_limit));
    }
    if (quota.lending_limit.has_value()) {
      added->set_lending_limit(static_cast<double>(*quota.lending_limit));
    }
    return added;
  };
  for (size_t i = 0; i < scheduler::kResources; ++i) {
    if (!tenant.quotas[i].limited()) continue;
    const auto resource = static_cast<scheduler::Resource>(i);
    v1::ResourceQuota* const quota =
        add(scheduler::ResourceName(resource), tenant.quotas[i]);
    quota->set_used(static_cast<double>(quotas_.Used(tenant.name, resource)));
    quota->set_borrowed(
        static_cast<double>(quotas_.Borrowed(tenant.name, resource)));
    quota->set_lent(static_cast<double>(quotas_.Lent(tenant.name, resource)));
  }
  const auto add_rate = [&](const char* resource,
                            const std::optional<scheduler::RateQuota>& rate,
                            const RateBudget& budget) {
    if (!rate.has_value()) return;
    v1::ResourceQuota* const quota = add(resource, *rate);
    const scheduler::RateShare share = budget.ShareOf(tenant.name);
    quota->set_used(budget.RateOf(tenant.name));
    quota->set_borrowed(share.borrowed);
    quota->set_lent(share.lent);
  };
  add_rate("device_seconds_per_second", tenant.device_rate, device_rates_);
  add_rate("bytes_per_second", tenant.byte_rate, byte_rates_);
}

}  // namespace djinn::coordinator
