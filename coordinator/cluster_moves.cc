#include "coordinator/cluster_moves.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/error.h"
#include "common/log/log.h"
#include "coordinator/cluster_fleet.h"
#include "coordinator/cluster_migration.h"
#include "coordinator/cluster_placement.h"
#include "coordinator/cluster_views.h"
#include "coordinator/lease_table.h"
#include "coordinator/unknown.h"
#include "coordinator/worker_registry.h"
#include "scheduler/semantics/meaning.h"

namespace djinn::coordinator::moves {
namespace {

// Of one worker that drains, at a time: its link serves all of them.
constexpr size_t kMaxFromOneWorker = 8;
// How often better places are looked for, for how many leases; and how long one
// stays at least.
constexpr absl::Duration kRebalanceInterval = absl::Seconds(5);
constexpr size_t kMaxRebalanced = 16;
constexpr absl::Duration kSettleTime = absl::Minutes(1);

}  // namespace

void NotePhase(ClusterState& state, const SharedWork& work, Session* session,
               Wakes* wakes) {
  const semantics::Phase phase = work->phase();
  // What most programs do between two phases.
  if (phase == semantics::Phase::kUnspecified ||
      phase == semantics::Phase::kForward || phase == session->phase) {
    return;
  }
  session->phase = phase;
  session->phase_work = work;
  if (!state.config.automatic_migration) return;
  for (Lease* lease : state.leases.OfSession(session->id)) {
    if (lease->migrating()) continue;
    migration::Start(state, lease, "", "phase", wakes, /*if_it_pays=*/true)
        .status()
        .IgnoreError();
  }
}

void Rebalance(ClusterState& state, absl::Duration now, Wakes* wakes) {
  if (!state.config.automatic_migration || now < state.next_rebalance) return;
  state.next_rebalance = now + kRebalanceInterval;
  // One at a time: what it changes shows in the workers' reports.
  std::vector<Lease*> turn;
  for (const auto& [id, lease] : state.leases.all()) {
    if (id > state.last_rebalanced) turn.push_back(lease.get());
  }
  if (turn.empty()) state.last_rebalanced.clear();
  if (turn.size() > kMaxRebalanced) turn.resize(kMaxRebalanced);
  for (Lease* lease : turn) {
    state.last_rebalanced = lease->id;
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
  for (const std::string& worker_id : state.draining) {
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
    log::Info("leases cannot leave the worker that drains",
              {{"worker", worker_id}, {"leases", stay}, {"first_error", why}});
  }
}

absl::Status CheckCordon(bool cordoned, bool drain) {
  if (drain && !cordoned) {
    return MakeError(absl::StatusCode::kInvalidArgument, "DRAIN_NEEDS_CORDON",
                     "a worker that gets new leases is not drained");
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::WorkerInfo> Cordon(ClusterState& state,
                                      const std::string& id, bool cordoned,
                                      bool drain, Wakes* wakes) {
  const Worker* const worker = state.workers.Find(id);
  // What is kept away from one that is gone for good can be let come again.
  if (worker == nullptr && (cordoned || !state.cordoned.contains(id))) {
    return Unknown("WORKER", id);
  }
  if (cordoned) {
    state.cordoned.insert(id);
  } else {
    state.cordoned.erase(id);
  }
  if (drain) {
    state.draining.insert(id);
  } else {
    state.draining.erase(id);
  }
  log::Info(drain      ? "worker drained"
            : cordoned ? "worker cordoned"
                       : "worker uncordoned",
            {{"worker", id}});
  v1::WorkerInfo info;
  if (worker == nullptr) {
    info.set_worker_id(id);
    return info;
  }
  fleet::Refresh(state, *worker);
  placement::RetryUnplaced(state, wakes);
  AdvanceDrains(state, state.clock->Monotonic(), wakes);
  views::Describe(state, *worker, &info);
  return info;
}

absl::StatusOr<v1::MigrateSessionResponse> MigrateSession(
    ClusterState& state, const v1::MigrateSessionRequest& request,
    Wakes* wakes) {
  const Session* const found = state.FindForOperator(request.session_id());
  if (found == nullptr) return SessionUnknown(request.session_id());
  const std::string& to = request.to_worker_id();
  if (!to.empty() && state.workers.Find(to) == nullptr) {
    return Unknown("WORKER", to);
  }
  std::vector<Lease*> leases;
  for (Lease* lease : state.leases.OfSession(found->id)) {
    if (lease->migrating() ||
        (request.has_virtual_device() &&
         lease->device.virtual_device != request.virtual_device())) {
      continue;
    }
    leases.push_back(lease);
  }
  if (leases.empty()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NO_LEASE",
                     "no such virtual device has a worker");
  }
  std::sort(leases.begin(), leases.end(), [](const Lease* a, const Lease* b) {
    return a->device < b->device;
  });
  v1::MigrateSessionResponse response;
  absl::Status first_failure;
  std::optional<uint32_t> failed;
  for (Lease* lease : leases) {
    const uint32_t device = lease->device.virtual_device;
    // Its other members stay for the same reason.
    if (failed == device) continue;
    const absl::StatusOr<Migration*> started =
        migration::Start(state, lease, to, "operator", wakes);
    if (started.ok()) {
      views::Describe(state, **started, response.add_migrations());
      continue;
    }
    failed = device;
    first_failure.Update(started.status());
    v1::MigrateSessionResponse::Failure* const failure =
        response.add_failures();
    failure->set_virtual_device(device);
    failure->set_reason(ErrorReason(started.status()));
    failure->set_message(std::string(started.status().message()));
  }
  if (response.migrations_size() == 0) return first_failure;
  return response;
}

}  // namespace djinn::coordinator::moves
