#include "coordinator/cluster/leases/restored.h"

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/cluster/leases/credits.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/tables/worker_registry.h"

namespace djinn::coordinator::restored {

std::optional<RestoredLease> Take(ClusterState& state,
                                  const std::string& lease_id) {
  const auto found = state.earlier.leases.find(lease_id);
  if (found == state.earlier.leases.end()) return std::nullopt;
  RestoredLease restored = std::move(found->second);
  state.earlier.leases.erase(found);
  state.quotas.tree.Give(restored.tenant, restored.quota);
  return restored;
}

void Forget(ClusterState& state,
            absl::FunctionRef<bool(const RestoredLease&)> which) {
  std::vector<std::string> ids;
  for (const auto& [id, restored] : state.earlier.leases) {
    if (which(restored)) ids.push_back(id);
  }
  for (const std::string& id : ids) Take(state, id);
}

void GiveUp(ClusterState& state) {
  state.earlier.until = absl::InfiniteDuration();
  state.earlier.workers.clear();
  Forget(state, [](const RestoredLease&) { return true; });
  std::vector<std::string> forgotten;
  for (const auto& [lease_id, account] : state.billing.ledger.accounts()) {
    const Worker* const worker = state.workers.Find(account.worker_id);
    if (state.leases.Find(lease_id) == nullptr && !account.retired &&
        (worker == nullptr || !(worker->ends.closing.Contains(lease_id) ||
                                worker->ends.settling.contains(lease_id)))) {
      forgotten.push_back(lease_id);
    }
  }
  for (const std::string& lease_id : forgotten) {
    state.billing.ledger.Retire(lease_id, state.clock->Monotonic(),
                                credits::RatesOfLease(state, lease_id));
  }
}

}  // namespace djinn::coordinator::restored
