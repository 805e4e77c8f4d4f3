#include "coordinator/cluster/cluster.h"

#include "absl/time/time.h"
#include "common/base/error.h"
#include "coordinator/cluster/departure.h"
#include "coordinator/cluster/leases/credits.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/leases/restored.h"
#include "coordinator/cluster/placement/migration.h"
#include "coordinator/cluster/placement/moves.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/waker.h"
#include "coordinator/tables/worker_registry.h"

namespace djinn::coordinator {

std::unique_ptr<ClusterState> MakeCluster(const Config* config,
                                          Tenants* tenants, Clock* clock,
                                          RandomSource* random) {
  auto state = std::make_unique<ClusterState>(config, tenants, clock, random);
  MutexLock lock(&state->mu);
  state->keys.Update(clock->Now(), state->saving.saves + 1);
  quota::Configure(*state);
  return state;
}

void Tick(ClusterState& state) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  const absl::Duration now = state.clock->Monotonic();
  workers::LoseSilent(state, now, &wakes);
  state.unreached.Expire(now);
  state.billing.ledger.ForgetRetired(now);
  state.keys.Update(state.clock->Now(), state.saving.saves + 1);
  if (now >= state.earlier.until) restored::GiveUp(state);
  credits::AdvanceRates(state, &wakes);
  // In every tick, because a worker may report a lease of a stopped queue only
  // after this process restarted.
  tenants::DrainStopped(state, &wakes);
  placement::RetryUnplaced(state, &wakes);
  departure::Expire(state, now, &wakes);
  migration::Expire(state, now, &wakes);
  moves::Rebalance(state, now, &wakes);
  moves::AdvanceDrains(state, now, &wakes);
  for (Session* session : state.sessions.TimedOut(now)) {
    sessions::End(state, session, "timed out", &wakes);
  }
  state.inquiries.Expire(now, &wakes);
  state.lineage_inquiries.Expire(now, &wakes);
  line::Places places;
  for (const auto& [id, session] : state.sessions.all()) {
    requests::Expire(state, session.get(), now, &places, &wakes);
    sessions::TellUrgency(state, session.get(), &wakes);
  }
  workers::SendHeartbeats(state, now, &wakes);
}

void Stop(ClusterState& state) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  state.stopping = true;
  const absl::Status stops =
      MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                "the coordinator stops");
  state.inquiries.End(stops, &wakes);
  state.lineage_inquiries.End(stops, &wakes);
  for (const auto& [id, session] : state.sessions.all()) {
    wakes.Add(session->link.waker);
  }
  for (const auto& [id, worker] : state.workers.all())
    wakes.Add(worker->link.waker);
}

}  // namespace djinn::coordinator
