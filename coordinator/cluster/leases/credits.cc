#include "coordinator/cluster/leases/credits.h"

#include <map>
#include <optional>
#include <vector>

#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/tables/worker_registry.h"
#include "scheduler/quota/rate_budget.h"

namespace djinn::coordinator::credits {

using scheduler::RateBudget;

void Open(ClusterState& state, const Lease& lease) {
  state.billing.ledger.Open(lease.id, lease.tenant, lease.worker_id);
  if (const auto tenant = state.tenants->Find(lease.tenant)) {
    TopUp(state, lease.id, *tenant);
  }
}

void Close(ClusterState& state, const Lease& lease) {
  state.billing.ledger.Close(lease.id, RatesOfLease(state, lease.id));
  Worker* const worker = state.workers.Find(lease.worker_id);
  if (lease.revision == 0 || worker == nullptr) {
    // The worker never heard of it.
    state.billing.ledger.Settle(lease.id, RatesOfLease(state, lease.id));
  } else {
    worker->ends.closing.Add(lease.id);
  }
}

void Bill(ClusterState& state, const std::string& lease_id, const Use& used) {
  const CreditLedger::Account* const account =
      state.billing.ledger.Find(lease_id);
  if (account == nullptr) return;
  const absl::Duration before = account->billed.device_time;
  state.billing.ledger.Bill(lease_id, used, RatesOf(state, account->tenant));
  state.queue.line.Charge(
      account->tenant,
      absl::ToDoubleSeconds(account->billed.device_time - before),
      state.clock->Monotonic());
}

absl::Duration DeviceTimeOf(const ClusterState& state, const Lease& lease) {
  const CreditLedger::Account* const account =
      state.billing.ledger.Find(lease.id);
  return account == nullptr ? absl::ZeroDuration()
                            : account->billed.device_time;
}

CreditLedger::Rates RatesOf(ClusterState& state, const std::string& tenant) {
  const auto rate_of =
      [&](RateBudget* budget) -> std::optional<CreditLedger::Rate> {
    double* const allowance = budget->Allowance(tenant);
    if (allowance == nullptr) return std::nullopt;
    return CreditLedger::Rate{allowance, budget->Slice(tenant),
                              budget->Most(tenant)};
  };
  return {.device_time = rate_of(&state.billing.device_rates),
          .bytes = rate_of(&state.billing.byte_rates)};
}

CreditLedger::Rates RatesOfLease(ClusterState& state,
                                 const std::string& lease_id) {
  const CreditLedger::Account* const account =
      state.billing.ledger.Find(lease_id);
  return account == nullptr ? CreditLedger::Rates()
                            : RatesOf(state, account->tenant);
}

void SettleWorker(ClusterState& state, const std::string& worker_id) {
  state.billing.ledger.SettleWorker(
      worker_id, [&](const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                     state.mu) { return RatesOf(state, tenant); });
}

void RetireWorker(ClusterState& state, const std::string& worker_id) {
  state.billing.ledger.RetireWorker(
      worker_id, state.clock->Monotonic(),
      [&](const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
        return RatesOf(state, tenant);
      });
}

bool TopUp(ClusterState& state, const std::string& lease_id,
           const Tenant& tenant) {
  return state.billing.ledger.TopUp(lease_id, tenant.credits,
                                    state.clock->Now(),
                                    RatesOf(state, tenant.name));
}

void AdvanceRates(ClusterState& state, Wakes* wakes) {
  const absl::Duration now = state.clock->Monotonic();
  if (state.billing.device_rates.empty() && state.billing.byte_rates.empty())
    return;
  if (!state.billing.device_rates.Due(now) &&
      !state.billing.byte_rates.Due(now))
    return;
  std::map<std::string, double> seconds, bytes;
  for (const auto& [name, tenant] : state.billing.ledger.tenants()) {
    seconds[name] = absl::ToDoubleSeconds(tenant.used.device_time);
    bytes[name] = static_cast<double>(tenant.used.bytes);
  }
  std::vector<Lease*> waiting;
  for (const auto& [id, lease] : state.leases.all()) {
    if (!lease->out_of_credit) continue;
    waiting.push_back(lease.get());
    const CreditLedger::Account* const account = state.billing.ledger.Find(id);
    if (account == nullptr) continue;
    // Notes which of the two ran out.
    if (account->billed.device_time >= account->granted.device_time) {
      state.billing.device_rates.NoteWaiting(lease->tenant, now);
    }
    if (account->billed.bytes >= account->granted.bytes) {
      state.billing.byte_rates.NoteWaiting(lease->tenant, now);
    }
  }
  state.billing.device_rates.Advance(now, seconds);
  state.billing.byte_rates.Advance(now, bytes);
  for (Lease* lease : waiting) {
    const auto tenant = state.tenants->Find(lease->tenant);
    if (tenant == nullptr ||
        !(tenant->credits.device_time_rated || tenant->credits.bytes_rated) ||
        !TopUp(state, lease->id, *tenant)) {
      continue;
    }
    notifications::SignAgain(state, lease, wakes);
  }
}

}  // namespace djinn::coordinator::credits
