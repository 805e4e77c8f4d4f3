#include "coordinator/cluster/placement/placement.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/error.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/cluster/quota/reclaim.h"
#include "coordinator/tables/queue_stops.h"
#include "coordinator/tables/worker_registry.h"
#include "scheduler/fairness/wait_queue.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/reservation.h"

namespace djinn::coordinator::placement {

using Ticket = scheduler::WaitQueue::Ticket;

namespace {

// Most workers of a decision that are kept for operators.
constexpr size_t kMaxKept = 32;
// Most bytes of a policy's name; longer ones name no policy.
constexpr size_t kMaxPolicyName = 64;

// Reserves a worker for the first request in the wait queue if that request has
// waited long enough, and logs the reservation. `tried` are the requests that
// were just tried.
void ReviewReservation(ClusterState& state, absl::Span<const Ticket> tried)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const std::string before = state.queue.reservation.worker_id();
  const auto find =
      [&state](Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
        const auto& [session_id, device] = state.queue.unplaced.at(ticket);
        Session* const session = state.sessions.Find(session_id);
        return std::pair(session, &session->devices.pending.at(device));
      };
  state.queue.reservation.Review(
      tried,
      [&](Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
          state.mu) -> std::optional<scheduler::Reservation::Waiter> {
        if (!state.queue.unplaced.contains(ticket)) return std::nullopt;
        const auto [session, pending] = find(ticket);
        if (ErrorReason(pending->obstacle) != "NO_CAPACITY") {
          return std::nullopt;
        }
        const auto tenant = state.tenants->Find(session->tenant);
        return scheduler::Reservation::Waiter{
            line::ClassOf(*session, tenant.get()), pending->asked};
      },
      [&](Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
        const auto [session, pending] = find(ticket);
        const auto tenant = state.tenants->Find(session->tenant);
        const SharedWork work = state.WorkOf(*session);
        scheduler::Request request =
            RequestFor(state, *session, *pending, tenant.get(), work);
        // Leaves the work out: it does not outlive this call, and the duration
        // of the work does not matter for a reservation.
        request.work = nullptr;
        return request;
      },
      fleet::Fresh(state), state.clock->Monotonic());
  if (state.queue.reservation.ticket() == 0 ||
      state.queue.reservation.worker_id() == before) {
    return;
  }
  const Session& session = *find(state.queue.reservation.ticket()).first;
  log::Info("worker reserved for the first in the wait queue",
            {{"worker", state.queue.reservation.worker_id()},
             {"session", log::ShortId(session.id)},
             {"tenant", session.tenant}});
}

}  // namespace

absl::Status CheckPolicy(const std::string& name) {
  if (name.size() > kMaxPolicyName) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "POLICY_UNKNOWN",
        absl::StrCat("a placement policy's name of ", name.size(), " bytes"));
  }
  return name.empty() ? absl::OkStatus() : scheduler::FindPolicy(name).status();
}

PolicyChoice PolicyFor(const Config& config, const std::string& of_request,
                       const std::string& of_session, const Tenant* tenant) {
  const std::pair<const std::string*, const char*> wishes[] = {
      {&of_request, "request"},
      {&of_session, "session"},
      {tenant == nullptr ? nullptr : &tenant->placement.policy, "tenant"},
      {&config.placement_policy, "cluster"}};
  for (const auto& [name, source] : wishes) {
    if (name == nullptr || name->empty()) continue;
    // Each name was checked when it arrived.
    return {*scheduler::FindPolicy(*name), source};
  }
  return {*scheduler::FindPolicy(scheduler::kDefaultPolicy), "cluster"};
}

scheduler::Request RequestFor(ClusterState& state, const Session& session,
                              const PendingLease& pending, const Tenant* tenant,
                              const SharedWork& work) {
  scheduler::Request request;
  request.asked_bytes = pending.asked_bytes;
  request.numerics = pending.numerics;
  if (tenant != nullptr) {
    request.asked_bytes = std::min(request.asked_bytes, LeaseMemory(*tenant));
  }
  // Contents are looked up within the tenant even where it shares contents: a
  // client that has not proven that it has the bytes must not learn here that
  // they exist.
  for (const ContentKey& key : pending.contents) {
    request.state.push_back({fleet::KeyOf(session.tenant, key), key.second});
  }
  if (work != nullptr) {
    request.work = work.get();
    request.phase = work->phase();
  }
  if (tenant != nullptr) request.required = tenant->placement.required;
  for (const Lease* lease : state.leases.OfSession(session.id)) {
    ++request.session_leases[lease->worker_id];
  }
  request.unreached = state.unreached.AvoidedBy(session.tenant, session.id,
                                                state.clock->Monotonic());
  request.unreached.insert(state.silent.begin(), state.silent.end());
  state.queue.reservation.Apply(pending.ticket, line::ClassOf(session, tenant),
                                &request);
  // A worker that still has to forget the session cannot serve it again.
  request.barred = [workers = &state.workers,
                    &session](const std::string& worker_id) {
    return workers->Find(worker_id)->ends.drops.Contains(session.id)
               ? "has to forget the session first"
               : "";
  };
  return request;
}

KeptDecision Decide(ClusterState& state, const scheduler::Request& request,
                    const PolicyChoice& choice) {
  const absl::Duration start = state.clock->Monotonic();
  auto decision = std::make_shared<scheduler::Decision>(
      scheduler::Place(request, fleet::Fresh(state), *choice.policy,
                       state.known.works.factors(), &state.known.draws));
  state.metrics.decisions.Observe(state.clock->Monotonic() - start);
  if (decision->considered.size() > kMaxKept) {
    decision->considered.resize(kMaxKept);
  }
  return {std::move(decision), choice.source, start};
}

namespace {

// Decides on a worker for the pending request, and stores the decision in it.
// Returns the scheduler's request, which `work` and the session must outlive.
scheduler::Request DecideFor(ClusterState& state, MemberId device,
                             const Tenant* tenant, const SharedWork& work,
                             Session* session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  PendingLease& pending = session->devices.pending.at(device);
  const PolicyChoice choice =
      PolicyFor(state.config, pending.policy, session->policy, tenant);
  scheduler::Request request =
      RequestFor(state, *session, pending, tenant, work);
  // Two replicas of a virtual device are on one worker only if one of them has
  // lost its worker, and there is no other.
  const auto busy = request.barred;
  absl::flat_hash_set<std::string> taken;
  for (const Lease* lease : state.leases.OfSession(session->id)) {
    if (lease->device.virtual_device == device.virtual_device) {
      taken.insert(lease->worker_id);
    }
  }
  request.barred = [&](const std::string& worker_id) {
    return taken.contains(worker_id) ? "has a part of the virtual device"
                                     : busy(worker_id);
  };
  pending.decision = Decide(state, request, choice);
  request.barred = busy;
  if (pending.decision.decision->worker_id.empty() && pending.recovers &&
      !taken.empty()) {
    pending.decision = Decide(state, request, choice);
  }
  return request;
}

// Takes the request out of the wait queue and offers a lease at the worker that
// the decision names.
void OfferAt(ClusterState& state, MemberId device,
             const scheduler::Decision& decision, const Tenant* tenant,
             Session* session, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  PendingLease& pending = session->devices.pending.at(device);
  const absl::Duration start = state.clock->Monotonic();
  state.queue.line.Serve(pending.ticket, start);
  line::Leave(state, &pending);
  state.queue.line.Charge(session->tenant, scheduler::WaitQueue::kTurn, start);
  Worker* const worker = state.workers.Find(decision.worker_id);
  Lease lease = leases::Make(state, *worker, device, tenant, session);
  lease.placement_reason = decision.reason;
  lease.decision = pending.decision;
  lease.promised_bytes = decision.considered.front().terms.missing_bytes;
  pending.lease_id = lease.id;
  if (session->MayLog(start)) {
    log::Info("lease offered", {{"lease", lease.id},
                                {"session", log::ShortId(session->id)},
                                {"tenant", session->tenant},
                                {"device", device.virtual_device},
                                {"member", device.member},
                                {"worker", worker->id},
                                {"policy", decision.policy},
                                {"reason", lease.placement_reason}});
  }
  leases::Offer(state, std::move(lease), worker, wakes);
}

}  // namespace

void TryPlace(ClusterState& state, MemberId device, Session* session,
              Wakes* wakes) {
  PendingLease& pending = session->devices.pending.at(device);
  const absl::Duration start = state.clock->Monotonic();
  // The reason for putting off stays until the next search is due.
  if (start >= pending.next_reclaim) pending.put_off.clear();
  if (state.queue.stops.Find(session->tenant) != nullptr) {
    state.metrics.attempts.Add({"queue_stopped"});
    line::LeaveUnplaced(state, device, QueueStopped(session->tenant), session,
                        wakes);
    return;
  }
  const std::shared_ptr<const Tenant> tenant =
      state.tenants->Find(session->tenant);
  if (tenant != nullptr &&
      !quota::AdmitOrRefuse(state, device, *tenant, session, wakes)) {
    return;
  }
  const SharedWork work = state.WorkOf(*session);
  const scheduler::Request request =
      DecideFor(state, device, tenant.get(), work, session);
  const std::shared_ptr<const scheduler::Decision> decision =
      pending.decision.decision;
  const bool placed = !decision->worker_id.empty();
  state.metrics.attempts.Add(
      {placed ? "placed"
              : absl::AsciiStrToLower(ErrorReason(decision->obstacle))});
  if (absl::IsFailedPrecondition(decision->obstacle)) {
    // Waiting will not help.
    line::Leave(state, &pending);
    const absl::Status why = decision->obstacle;
    session->devices.pending.erase(device);
    notifications::Refuse(state, why, device, session, wakes);
    return;
  }
  if (!placed) {
    const bool waits = device.member == 0 || pending.recovers;
    line::LeaveUnplaced(state, device, decision->obstacle, session, wakes);
    if (waits && tenant != nullptr &&
        ErrorReason(decision->obstacle) == "NO_CAPACITY") {
      reclaim::TakeRoom(state, device, *tenant, request, session, wakes);
    }
    return;
  }
  if (tenant != nullptr) {
    // Takes borrowed quota back. That fails if a restored lease that no worker
    // has reported yet holds it.
    const absl::Status free =
        reclaim::TakeQuota(state, *tenant, &pending, wakes);
    if (!free.ok()) {
      // The request waits for quota, not for the worker that was found.
      pending.decision = {};
      return line::LeaveUnplaced(state, device, free, session, wakes);
    }
  }
  OfferAt(state, device, *decision, tenant.get(), session, wakes);
}

void RetryUnplaced(ClusterState& state, Wakes* wakes) {
  state.queue.untried = false;
  if (state.queue.line.empty()) return;
  const absl::Duration start = state.clock->Monotonic();
  const size_t waited = state.queue.line.size();
  const std::vector<Ticket> tried = state.queue.line.Try(
      start, line::PrecedenceNow(state),
      [&](Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
        // The request may have been refused while another one was tried.
        const auto unplaced = state.queue.unplaced.find(ticket);
        if (unplaced == state.queue.unplaced.end()) return true;
        const auto [session_id, device] = unplaced->second;
        TryPlace(state, device, state.sessions.Find(session_id), wakes);
        return !state.queue.unplaced.contains(ticket);
      });
  // If some of the requests found room, those that were not tried may find
  // some, too. They come before later requests.
  state.queue.untried =
      tried.size() < waited && state.queue.line.size() < waited;
  ReviewReservation(state, tried);
  const absl::Duration end = state.clock->Monotonic();
  state.queue.next_retry = end + 3 * (end - start);
}

void RetryInTime(ClusterState& state, Wakes* wakes) {
  if (state.clock->Monotonic() < state.queue.next_retry) {
    state.queue.untried = true;
  } else {
    RetryUnplaced(state, wakes);
  }
}

}  // namespace djinn::coordinator::placement
