#include "coordinator/cluster/quota/away.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/tables/worker_registry.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::coordinator::away {
namespace {

// A client whose process and network live attaches again within this time.
constexpr absl::Duration kReturnTime = absl::Seconds(1);

// Returns when the session, which has no stream, lost it.
absl::Duration LeftAt(const ClusterState& state, const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  return session.deadline - state.config.session_timeout;
}

// Returns whether the worker has reported since the session lost its stream
// here, and has no stream of the session either.
bool HasNoStream(ClusterState& state, const Session& session,
                 const Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const Worker* const worker = state.workers.Find(lease.worker_id);
  if (worker == nullptr || !worker->usable() ||
      worker->last_report < LeftAt(state, session)) {
    return false;
  }
  const auto held = worker->leases.held.find(lease.id);
  return held == worker->leases.held.end() || !held->second.attached;
}

bool IsAway(ClusterState& state, const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  if (!session.end.ok() ||
      state.clock->Monotonic() < LeftAt(state, session) + kReturnTime) {
    return false;
  }
  for (const Lease* lease : state.leases.OfSession(session.id)) {
    if (!HasNoStream(state, session, *lease)) return false;
  }
  return true;
}

// Returns the tenant's sessions whose clients are away, the longest first.
std::vector<Session*> SessionsAway(ClusterState& state,
                                   const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  std::vector<Session*> sessions;
  for (Session* session : state.sessions.WithoutStream(tenant)) {
    if (IsAway(state, *session)) sessions.push_back(session);
  }
  std::sort(sessions.begin(), sessions.end(),
            [](const Session* a, const Session* b) {
              return a->deadline < b->deadline;
            });
  return sessions;
}

// Returns the quota that the session's leases hold.
scheduler::Amounts QuotaOf(ClusterState& state, const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  scheduler::Amounts sum = {};
  for (const Lease* lease : state.leases.OfSession(session.id)) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += lease->quota[i];
  }
  return sum;
}

// Ends the session's leases and has their workers drop it.
void EndLeases(ClusterState& state, Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  log::Warning("a session without a client gives its leases to others",
               {{"session", log::ShortId(session->id)},
                {"tenant", session->tenant},
                {"away", state.clock->Monotonic() - LeftAt(state, *session)}});
  std::vector<std::string> lease_ids;
  std::set<std::string> worker_ids;
  for (const Lease* lease : state.leases.OfSession(session->id)) {
    lease_ids.push_back(lease->id);
    worker_ids.insert(lease->worker_id);
  }
  for (const std::string& lease_id : lease_ids) {
    // The end of a lease also ends the migration to another one.
    Lease* const lease = state.leases.Find(lease_id);
    if (lease == nullptr) continue;
    leases::End(state, lease, "SESSION_LOST", wakes, session->tenant);
  }
  for (const std::string& worker_id : worker_ids) {
    notifications::Drop(session->id, state.workers.Find(worker_id), wakes);
  }
}

}  // namespace

void MakeRoom(ClusterState& state, const Tenant& tenant, Wakes* wakes) {
  const scheduler::Amounts asked = LeaseQuota(tenant);
  scheduler::QuotaTree& tree = state.quotas.tree;
  const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
    return !tree.Check(tenant.name, asked).has_value();
  };
  if (fits()) return;
  std::vector<Session*> ends;
  scheduler::Amounts given = {};
  for (Session* session : SessionsAway(state, tenant.name)) {
    const scheduler::Amounts held = QuotaOf(state, *session);
    if (held == scheduler::Amounts{}) continue;
    ends.push_back(session);
    for (size_t i = 0; i < held.size(); ++i) given[i] += held[i];
    tree.Give(tenant.name, held);
    if (fits()) break;
  }
  const bool enough = fits();
  // The end of a lease gives its quota back.
  tree.Take(tenant.name, given);
  if (!enough) return;
  for (Session* session : ends) EndLeases(state, session, wakes);
}

Session* Longest(ClusterState& state, const std::string& tenant) {
  const std::vector<Session*> sessions = SessionsAway(state, tenant);
  return sessions.empty() ? nullptr : sessions.front();
}

absl::Duration NextTime(const ClusterState& state, const std::string& tenant) {
  const absl::Duration now = state.clock->Monotonic();
  absl::Duration next = absl::InfiniteDuration();
  for (const Session* session : state.sessions.WithoutStream(tenant)) {
    const absl::Duration away = LeftAt(state, *session) + kReturnTime;
    next = std::min(next, away > now ? away : session->deadline);
  }
  return next;
}

}  // namespace djinn::coordinator::away
