#include "coordinator/cluster/placement/moves.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/placement/migration.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/worker_registry.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator::moves {
namespace {

// Most migrations at a time from one draining worker, because its link serves
// all of them.
constexpr size_t kMaxFromOneWorker = 8;
// How often better workers are searched, for how many leases at most, and how
// old a lease must be before it migrates again.
constexpr absl::Duration kRebalanceInterval = absl::Seconds(5);
constexpr size_t kMaxRebalanced = 16;
constexpr absl::Duration kSettleTime = absl::Minutes(1);

}  // namespace

void NotePhase(ClusterState& state, const SharedWork& work, Session* session,
               Wakes* wakes) {
  const semantics::Phase phase = work->phase();
  // Forward passes do not change the phase, because most programs execute some
  // between two phases.
  if (phase == semantics::Phase::kUnspecified ||
      phase == semantics::Phase::kForward || phase == session->work.phase) {
    return;
  }
  session->work.phase = phase;
  session->work.phase_work = work;
  if (!state.config.automatic_migration) return;
  for (Lease* lease : state.leases.OfSession(session->id)) {
    if (lease->migrating()) continue;
    migration::Start(state, lease, "", "phase", wakes, /*if_it_pays=*/true)
        .status()
        .IgnoreError();
  }
}

void Rebalance(ClusterState& state, absl::Duration now, Wakes* wakes) {
  if (!state.config.automatic_migration || now < state.moves.next_rebalance)
    return;
  state.moves.next_rebalance = now + kRebalanceInterval;
  // Migrates one lease at a time, because the effect shows only in the workers'
  // next reports.
  std::vector<Lease*> turn;
  for (const auto& [id, lease] : state.leases.all()) {
    if (id > state.moves.last_rebalanced) turn.push_back(lease.get());
  }
  if (turn.empty()) state.moves.last_rebalanced.clear();
  if (turn.size() > kMaxRebalanced) turn.resize(kMaxRebalanced);
  for (Lease* lease : turn) {
    state.moves.last_rebalanced = lease->id;
    if (lease->migrating() || lease->state != Lease::State::kGranted ||
        now < lease->created + kSettleTime || now < lease->stays_until) {
      continue;
    }
    if (migration::Start(state, lease, "", "policy", wakes, /*if_it_pays=*/true)
            .ok()) {
      return;
    }
  }
}

void AdvanceDrains(ClusterState& state, absl::Duration now, Wakes* wakes) {
  std::set<std::string> workers = state.moves.draining;
  for (const auto& [id, leaving] : state.moves.leaving) workers.insert(id);
  for (const std::string& worker_id : workers) {
    const std::vector<Lease*> leases = state.leases.OfWorker(worker_id);
    size_t under_way = 0, stay = 0;
    absl::Status why;
    for (const Lease* lease : leases) {
      under_way += state.leases.FindMigration(*lease) != nullptr;
    }
    for (Lease* lease : leases) {
      if (under_way >= kMaxFromOneWorker) break;
      if (lease->migrating() || now < lease->stays_until ||
          lease->state != Lease::State::kGranted ||
          state.leases.FindMigration(*lease) != nullptr) {
        continue;
      }
      const absl::Status started =
          migration::Start(state, lease, "", "drain", wakes).status();
      under_way += started.ok();
      if (started.ok()) continue;
      lease->stays_until = now + migration::kRetryTime;
      ++stay;
      why.Update(started);
    }
    Worker* const worker = state.workers.Find(worker_id);
    if (stay == 0 || worker == nullptr || !worker->logged_drains.Take(now)) {
      continue;
    }
    log::Info("leases cannot leave the draining worker",
              {{"worker", worker_id}, {"leases", stay}, {"first_error", why}});
  }
}

}  // namespace djinn::coordinator::moves
