#include "coordinator/cluster/leases/line.h"

#include <string>
#include <utility>

#include "common/base/proto_duration.h"
#include "common/lease/priority_class.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/queue_stops.h"
#include "djinn/v1/lease.pb.h"
#include "scheduler/quota/quota_tree.h"

namespace djinn::coordinator::line {
namespace {

// Removes the request of a tenant whose queue is stopped from the wait queue,
// so that it holds up no other request.
void SetAside(ClusterState& state, PendingLease* pending,
              const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  Leave(state, pending);
  // Drops the decision and the room being freed: no worker is searched now.
  pending->decision = {};
  pending->room = {};
  pending->obstacle = QueueStopped(tenant);
}

}  // namespace

void Join(ClusterState& state, MemberId device, Session* session) {
  PendingLease& pending = session->devices.pending.at(device);
  if (state.queue.stops.Find(session->tenant) != nullptr) {
    return SetAside(state, &pending, session->tenant);
  }
  if (pending.ticket != 0) return;
  pending.ticket = state.queue.line.Join(
      {.tenant = session->tenant,
       .returns = session->devices.returning.contains(device)},
      state.clock->Monotonic());
  state.queue.unplaced.emplace(pending.ticket, std::pair(session->id, device));
  ChangePlaces(state, session);
}

void Leave(ClusterState& state, PendingLease* pending) {
  // The worker that was reserved for the request is free for others now.
  if (state.queue.reservation.Lift(pending->ticket)) state.queue.untried = true;
  state.queue.line.Leave(pending->ticket, state.clock->Monotonic());
  state.queue.unplaced.erase(pending->ticket);
  pending->ticket = 0;
}

void LeaveUnplaced(ClusterState& state, MemberId device,
                   const absl::Status& obstacle, Session* session,
                   Wakes* wakes) {
  PendingLease& pending = session->devices.pending.at(device);
  if (device.member == 0 || pending.recovers) {
    pending.obstacle = obstacle;
    Join(state, device, session);
    return;
  }
  Leave(state, &pending);
  session->devices.pending.erase(device);
  notifications::Refuse(state, obstacle, device, session, wakes);
}

int ClassOf(const Session& session, const Tenant* tenant) {
  return EffectiveClass(
      AllowedUrgency(tenant, session.urgency).priority_class());
}

void ChangePlaces(ClusterState& state, Session* session) {
  const auto tenant = state.tenants->Find(session->tenant);
  const v1::Urgency urgency = AllowedUrgency(tenant.get(), session->urgency);
  const absl::Duration within = urgency.has_run_deadline()
                                    ? FromProtoDuration(urgency.run_deadline())
                                    : absl::InfiniteDuration();
  for (const auto& [device, pending] : session->devices.pending) {
    state.queue.line.Change(pending.ticket, ClassOf(*session, tenant.get()),
                            pending.asked + within);
  }
}

scheduler::WaitQueue::Precedence PrecedenceNow(const ClusterState& state) {
  return [tenants = state.tenants->all(),
          quotas = &state.quotas.tree](const std::string& name) {
    const auto tenant = tenants->find(name);
    return quotas->Precedence(name, tenant == tenants->end()
                                        ? scheduler::Amounts()
                                        : LeaseQuota(*tenant->second));
  };
}

size_t PlaceOf(ClusterState& state, scheduler::WaitQueue::Ticket ticket,
               absl::Duration now, Places* places) {
  if (!places->has_value()) {
    *places = state.queue.line.PlacesNow(now, PrecedenceNow(state));
  }
  return (*places)->at(ticket);
}

}  // namespace djinn::coordinator::line
