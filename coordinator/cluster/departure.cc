#include "coordinator/cluster/departure.h"

#include <string>

#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/placement/moves.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/worker_registry.h"

namespace djinn::coordinator::departure {
namespace {

// Returns whether a worker besides this one takes leases.
bool HasOthers(const ClusterState& state, const std::string& worker_id)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  for (const auto& [id, other] : state.workers.all()) {
    if (id != worker_id && other->usable() && !state.moves.Cordoned(id)) {
      return true;
    }
  }
  return false;
}

// Returns whether the use of all leases that ended at the worker is saved.
bool Settled(const Worker& worker) {
  return worker.ends.closing.empty() && worker.ends.measuring.empty() &&
         worker.ends.settling.empty();
}

}  // namespace

absl::StatusOr<v1::LeaveProgress> Leave(ClusterState& state,
                                        const v1::LeaveRequest& request) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  DJINN_RETURN_IF_ERROR(state.CheckTerm(request.known_term()));
  const std::string& id = request.worker_id();
  const Worker* const worker = state.workers.Find(id);
  if (worker == nullptr || worker->incarnation != request.incarnation() ||
      !worker->usable()) {
    return Unknown("WORKER", id);
  }
  const absl::Duration now = state.clock->Monotonic();
  const bool first =
      state.moves.leaving
          .insert_or_assign(
              id, Moves::Leaving{request.incarnation(), now + kValidFor})
          .second;
  if (first) {
    log::Info("worker leaves", {{"worker", id}});
    fleet::Refresh(state, *worker);
    moves::AdvanceDrains(state, now, &wakes);
  }
  v1::LeaveProgress progress;
  progress.set_leases(
      static_cast<uint32_t>(state.leases.CountOfWorker(worker->id)));
  progress.set_settled(Settled(*worker));
  progress.set_others(HasOthers(state, id));
  return progress;
}

bool HasLeft(const ClusterState& state, const Worker& worker) {
  const auto leaving = state.moves.leaving.find(worker.id);
  const bool announced = leaving != state.moves.leaving.end() &&
                         leaving->second.incarnation == worker.incarnation;
  // A drained worker's process may go on. Keep the worker while it holds
  // sessions that have ended here.
  const bool drained = state.moves.draining.contains(worker.id) &&
                       worker.leases.held.empty() && worker.ends.drops.empty();
  return (announced || drained) && state.leases.CountOfWorker(worker.id) == 0 &&
         Settled(worker);
}

void Expire(ClusterState& state, absl::Duration now, Wakes* wakes) {
  bool changed = false;
  for (auto it = state.moves.leaving.begin();
       it != state.moves.leaving.end();) {
    const Worker* const worker = state.workers.Find(it->first);
    const bool same =
        worker == nullptr || worker->incarnation == it->second.incarnation;
    if (same && now < it->second.until) {
      ++it;
      continue;
    }
    it = state.moves.leaving.erase(it);
    if (worker != nullptr) fleet::Refresh(state, *worker);
    changed = true;
  }
  if (changed) placement::RetryUnplaced(state, wakes);
}

}  // namespace djinn::coordinator::departure
