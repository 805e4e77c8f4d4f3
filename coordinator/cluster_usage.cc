#include "coordinator/cluster_usage.h"

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/lease/lease_verifier.h"
#include "common/log/log.h"
#include "coordinator/cluster_credits.h"
#include "coordinator/cluster_leases.h"
#include "coordinator/cluster_notices.h"
#include "coordinator/credit_ledger.h"
#include "coordinator/lease_table.h"
#include "djinn/v1/lease.pb.h"

namespace djinn::coordinator::usage {
namespace {

void BillHeld(ClusterState& state, const std::string& lease_id,
              const Worker::Held& held, Worker* worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  // What it names is its word alone: it speaks of its own leases.
  const CreditLedger::Account* const account = state.ledger.Find(lease_id);
  if (account == nullptr || account->worker_id != worker->id) return;
  credits::Bill(state, lease_id, Use::From(held.lease_use));
  Lease* const lease = state.leases.Find(lease_id);
  if (lease == nullptr || lease->worker_id != worker->id) return;
  lease->out_of_credit = held.out_of_credit;
  const std::shared_ptr<const Tenant> tenant =
      state.tenants->Find(lease->tenant);
  if (tenant != nullptr && credits::TopUp(state, lease_id, *tenant)) {
    lease->reissue_time = absl::InfinitePast();
    notices::Touch(worker, wakes);
  }
}

void EndReported(ClusterState& state, const v1::EndedLease& ended,
                 Worker* worker, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::StatusOr<v1::LeaseClaims> claims =
      leases::ReportedClaims(state, ended.lease());
  if (!claims.ok() || claims->worker_id() != worker->id ||
      claims->worker_incarnation() != worker->incarnation) {
    log::Warning("the use of a lease is not believed",
                 {{"worker", worker->id}, {"status", claims.status()}});
    return;
  }
  const std::string& lease_id = claims->lease_id();
  // Without a key that is known the claims are its word, too.
  if (const CreditLedger::Account* const account = state.ledger.Find(lease_id);
      account != nullptr && account->worker_id != worker->id) {
    return;
  }
  if (Lease* const lease = state.leases.Find(lease_id);
      lease != nullptr && lease->worker_id == worker->id &&
      lease->state == Lease::State::kGranted) {
    // The worker gave it up while we were away for too long.
    leases::End(state, lease, "LEASE_EXPIRED", wakes);
  }
  // An account stays until its worker reports the lease no more. So one that an
  // earlier process did not keep is of a lease that came after its last save;
  // unless this process gave up waiting for it.
  const bool waits = state.restored_until != absl::InfiniteDuration();
  if ((state.first_process || waits) &&
      state.ledger.Find(lease_id) == nullptr) {
    state.ledger.Open(lease_id, claims->tenant(), worker->id);
  }
  credits::Bill(state, lease_id, Use::From(ended.use()));
  if (ended.measuring()) {
    worker->closing.emplace(lease_id, 0);
    return;
  }
  state.ledger.Close(lease_id, credits::RatesOfLease(state, lease_id));
  worker->closing.erase(lease_id);
  worker->settling.try_emplace(lease_id, state.saves + 1);
}

}  // namespace

void Absorb(ClusterState& state, const v1::WorkerState& report, Worker* worker,
            Wakes* wakes) {
  for (const auto& [lease_id, held] : worker->held) {
    BillHeld(state, lease_id, held, worker, wakes);
  }
  absl::flat_hash_set<std::string> reported, measuring;
  for (const v1::EndedLease& ended : report.ended_leases()) {
    const std::string lease_id = UncheckedClaims(ended.lease()).lease_id();
    reported.insert(lease_id);
    if (ended.measuring()) {
      measuring.insert(lease_id);
    } else if (worker->settling.contains(lease_id) &&
               state.leases.Find(lease_id) == nullptr) {
      // Billed in full: it is reported until the worker has heard so, and to
      // check its signature again and again would hold up everybody.
      continue;
    }
    EndReported(state, ended, worker, wakes);
  }
  std::erase_if(worker->settling,
                [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
                  if (reported.contains(entry.first)) return false;
                  state.ledger.Settle(
                      entry.first, credits::RatesOfLease(state, entry.first));
                  return true;
                });
  // It has been told to end these, and knows nothing of them.
  std::erase_if(
      worker->closing,
      [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
        const auto& [lease_id, revision] = entry;
        if (revision == 0 || revision > report.applied_revision() ||
            worker->held.contains(lease_id) || measuring.contains(lease_id)) {
          return false;
        }
        state.ledger.Settle(lease_id, credits::RatesOfLease(state, lease_id));
        return true;
      });
}

}  // namespace djinn::coordinator::usage
