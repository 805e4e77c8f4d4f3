#include "coordinator/cluster/usage.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/credits.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/tables/lease_table.h"
#include "djinn/v1/lease.pb.h"

namespace djinn::coordinator::usage {
namespace {

void BillHeld(ClusterState& state, const std::string& lease_id,
              const Worker::Held& held, Worker* worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  // Bills only leases of this worker: nothing but its own word proves the use.
  const CreditLedger::Account* const account =
      state.billing.ledger.Find(lease_id);
  if (account == nullptr || account->worker_id != worker->id) return;
  credits::Bill(state, lease_id, Use::From(held.lease_use));
  Lease* const lease = state.leases.Find(lease_id);
  if (lease == nullptr || lease->worker_id != worker->id) return;
  lease->out_of_credit = held.out_of_credit;
  const std::shared_ptr<const Tenant> tenant =
      state.tenants->Find(lease->tenant);
  if (tenant != nullptr && credits::TopUp(state, lease_id, *tenant)) {
    notifications::SignAgain(state, lease, wakes);
  }
}

void EndReported(ClusterState& state, const v1::EndedLease& ended,
                 Worker* worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::StatusOr<v1::LeaseClaims> claims =
      leases::ReportedClaims(state, ended.lease());
  if (!claims.ok() || claims->worker_id() != worker->id ||
      claims->worker_incarnation() != worker->incarnation) {
    log::Warning(
        "rejected the reported use of a lease: not signed for this worker",
        {{"worker", worker->id}, {"status", claims.status()}});
    return;
  }
  const std::string& lease_id = claims->lease_id();
  // Claims that no known key signed rest on the worker's word alone, too.
  if (const CreditLedger::Account* const account =
          state.billing.ledger.Find(lease_id);
      account != nullptr && account->worker_id != worker->id) {
    return;
  }
  if (Lease* const lease = state.leases.Find(lease_id);
      lease != nullptr && lease->worker_id == worker->id &&
      lease->state == Lease::State::kGranted) {
    // Without another reason, the worker ended the lease because the
    // coordinator was away for too long.
    leases::End(state, lease,
                ended.reason().empty() ? "LEASE_EXPIRED" : ended.reason(),
                wakes);
  }
  // An account stays until its worker no longer reports the lease. So if an
  // earlier process did not keep an account, that process made the lease after
  // its last save, unless this process has stopped waiting for the workers'
  // reports.
  const bool waits = state.earlier.until != absl::InfiniteDuration();
  if ((state.earlier.none || waits) &&
      state.billing.ledger.Find(lease_id) == nullptr) {
    state.billing.ledger.Open(lease_id, claims->tenant(), worker->id);
  }
  credits::Bill(state, lease_id, Use::From(ended.use()));
  if (ended.measuring()) {
    worker->ends.closing.Add(lease_id);
    return;
  }
  state.billing.ledger.Close(lease_id, credits::RatesOfLease(state, lease_id));
  worker->ends.closing.Remove(lease_id);
  worker->ends.settling.try_emplace(lease_id,
                                    Worker::Settling{state.saving.saves + 1});
}

}  // namespace

void Absorb(ClusterState& state, const v1::WorkerState& report, Worker* worker,
            Wakes* wakes) {
  // A lease that waits for credit is reported once, and may get credit at any
  // time.
  absl::btree_set<std::string> leases = worker->leases.out_of_credit;
  leases.insert(worker->leases.changed.begin(), worker->leases.changed.end());
  for (const std::string& lease_id : leases) {
    BillHeld(state, lease_id, worker->leases.held.at(lease_id), worker, wakes);
  }
  if (report.complete()) worker->ends.measuring.clear();
  for (const std::string& lease_id : report.forgotten_lease_ids()) {
    worker->ends.measuring.erase(lease_id);
  }
  absl::flat_hash_set<std::string> reported;
  for (const v1::EndedLease& ended : report.ended_leases()) {
    const std::string lease_id = UncheckedClaims(ended.lease()).lease_id();
    reported.insert(lease_id);
    if (ended.measuring()) {
      worker->ends.measuring.insert(lease_id);
    } else {
      worker->ends.measuring.erase(lease_id);
      if (worker->ends.settling.contains(lease_id) &&
          state.leases.Find(lease_id) == nullptr) {
        // The lease is billed in full, and its signature was checked.
        continue;
      }
    }
    EndReported(state, ended, worker, wakes);
  }
  const uint64_t applied = report.applied_revision();
  std::erase_if(
      worker->ends.settling,
      [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
        const auto& [lease_id, settling] = entry;
        const bool told = settling.revision > 0 && settling.revision <= applied;
        if (!told && (!report.complete() || reported.contains(lease_id))) {
          return false;
        }
        state.billing.ledger.Settle(lease_id,
                                    credits::RatesOfLease(state, lease_id));
        return true;
      });
  // Settles the leases whose end the worker has applied and of which it reports
  // nothing any more.
  worker->ends.closing.RemoveApplied(
      applied,
      [&](const std::string& lease_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
        if (worker->leases.held.contains(lease_id) ||
            worker->ends.measuring.contains(lease_id)) {
          return false;
        }
        state.billing.ledger.Settle(lease_id,
                                    credits::RatesOfLease(state, lease_id));
        return true;
      });
}

}  // namespace djinn::coordinator::usage
