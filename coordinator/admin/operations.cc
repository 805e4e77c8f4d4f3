#include "coordinator/admin/operations.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/placement/migration.h"
#include "coordinator/cluster/placement/moves.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"

namespace djinn::coordinator::operations {
namespace {

absl::Status CheckCordon(bool cordoned, bool drain) {
  if (drain && !cordoned) {
    return MakeError(absl::StatusCode::kInvalidArgument, "DRAIN_NEEDS_CORDON",
                     "a worker that gets new leases is not drained");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::WorkerInfo> Cordon(ClusterState& state,
                                      const std::string& id, bool cordoned,
                                      bool drain) {
  DJINN_RETURN_IF_ERROR(CheckCordon(cordoned, drain));
  Wakes wakes;
  MutexLock lock(&state.mu);
  const Worker* const worker = state.workers.Find(id);
  // The cordon of a worker that is gone for good may be lifted.
  if (worker == nullptr && (cordoned || !state.moves.cordoned.contains(id))) {
    return Unknown("WORKER", id);
  }
  if (cordoned) {
    state.moves.cordoned.insert(id);
  } else {
    state.moves.cordoned.erase(id);
  }
  if (drain) {
    state.moves.draining.insert(id);
  } else {
    state.moves.draining.erase(id);
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
  placement::RetryUnplaced(state, &wakes);
  moves::AdvanceDrains(state, state.clock->Monotonic(), &wakes);
  views::Describe(state, *worker, &info);
  return info;
}

absl::StatusOr<v1::MigrateSessionResponse> MigrateSession(
    ClusterState& state, const v1::MigrateSessionRequest& request) {
  Wakes wakes;
  MutexLock lock(&state.mu);
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
    // The device's other members cannot migrate for the same reason.
    if (failed == device) continue;
    const absl::StatusOr<Migration*> started =
        migration::Start(state, lease, to, "operator", &wakes);
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

}  // namespace djinn::coordinator::operations
