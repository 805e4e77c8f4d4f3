#include "coordinator/cluster/requests.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/retry_after.h"
#include "common/base/saturating.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/leases/restored.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/errors.h"
#include "scheduler/fairness/wait_queue.h"

namespace djinn::coordinator::requests {
namespace {

// Most messages that may wait for a client before it may request more: several
// for each virtual device.
constexpr size_t kMaxOutbox = 4 * kMaxVirtualDevices;

// Most returned leases that are remembered of a session: several for each of
// its virtual devices.
constexpr size_t kMaxReturnedLeases = 4 * kMaxVirtualDevices;

// Limit on LeaseRequest.numerics.
constexpr size_t kMaxNumerics = 256;

PendingLease PendingFrom(const v1::LeaseRequest& request) {
  PendingLease pending;
  pending.policy = request.placement_policy();
  pending.numerics = request.numerics();
  pending.recovers = request.recovers();
  const auto add = [&pending](uint64_t bytes) {
    pending.asked_bytes = SaturatingSum(pending.asked_bytes, bytes);
  };
  for (const v1::ContentHint& hint : request.contents()) {
    const ContentKey key{ContentHash{hint.hash_high(), hint.hash_low()},
                         hint.size_bytes()};
    // A content that is named twice is uploaded once.
    if (!pending.contents.insert(key).second) continue;
    add(hint.size_bytes());
  }
  pending.needed_bytes = request.needed_bytes();
  add(request.needed_bytes());
  return pending;
}

absl::StatusOr<PendingLease> Parse(const v1::LeaseRequest& request) {
  const MemberId device{request.virtual_device(), request.member()};
  if (device.virtual_device >= kMaxVirtualDevices) {
    return Violation(absl::StrCat("virtual device ", device.virtual_device,
                                  ": there are at most ", kMaxVirtualDevices));
  }
  if (device.member >= kMaxMembers) {
    return Violation(absl::StrCat("member ", device.member,
                                  " of a virtual device: there are at most ",
                                  kMaxMembers));
  }
  if (request.contents_size() > kMaxContentHints) {
    return Violation(
        absl::StrCat("a lease request with ", request.contents_size(),
                     " contents: at most ", kMaxContentHints, " are allowed"));
  }
  if (request.numerics().size() > kMaxNumerics) {
    return Violation(absl::StrCat("a lease request with numerics of ",
                                  request.numerics().size(), " bytes"));
  }
  return PendingFrom(request);
}

// Notes that the lease's client could not reach the worker, and logs it when
// that changes who avoids the worker.
void NoteUnreached(ClusterState& state, const Lease& lease)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Duration now = state.clock->Monotonic();
  const size_t before = state.unreached.Summarize(lease.worker_id, now).tenants;
  state.unreached.Add(lease.worker_id, lease.tenant, lease.session_id, now);
  const UnreachedWorkers::Summary after =
      state.unreached.Summarize(lease.worker_id, now);
  Worker* const worker = state.workers.Find(lease.worker_id);
  if (after.tenants == before || !worker->logged_unreached.Take(now)) return;
  log::Warning("clients do not reach a worker; others are preferred",
               {{"worker", worker->id},
                {"address", worker->facts.address},
                {"tenant", lease.tenant},
                {"tenants", after.tenants},
                {"for_everyone", after.by_everyone()}});
}

absl::Status CheckReturn(const v1::LeaseReturn& returned) {
  const size_t size = returned.lease_id().size();
  if (size == 0 || size > kMaxLeaseId) {
    return Violation(absl::StrCat("a lease's id of ", size, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Request(ClusterState& state, const StreamId& id,
                     const v1::LeaseRequest& request) {
  DJINN_ASSIGN_OR_RETURN(PendingLease asked, Parse(request));
  const MemberId device{request.virtual_device(), request.member()};
  Wakes wakes;
  MutexLock lock(&state.mu);
  DJINN_ASSIGN_OR_RETURN(Session* const session, state.FindOpenSession(id));
  if (session->link.outbox.size() >= kMaxOutbox) {
    return Violation("asks for leases without reading the answers");
  }
  if (const absl::Status policy = placement::CheckPolicy(asked.policy);
      !policy.ok()) {
    notifications::Refuse(state, policy, device, session, &wakes);
    return absl::OkStatus();
  }
  const Lease* const lease = state.leases.FindDevice(session->id, device);
  if (lease != nullptr && lease->state == Lease::State::kGranted) {
    v1::SessionResponse response;
    *response.mutable_granted() =
        leases::GrantOf(*state.workers.Find(lease->worker_id), *lease);
    notifications::Send(std::move(response), session, &wakes);
    return absl::OkStatus();
  }
  if (session->devices.pending.contains(device)) return absl::OkStatus();
  asked.asked = state.clock->Monotonic();
  asked.deadline = asked.asked + state.config.lease_request_timeout;
  session->devices.pending.emplace(device, std::move(asked));
  if (!state.queue.untried || state.queue.line.empty() ||
      state.queue.stops.Find(session->tenant) != nullptr) {
    placement::TryPlace(state, device, session, &wakes);
    return absl::OkStatus();
  }
  // Workers that became free meanwhile are for the requests that wait already.
  session->devices.pending.at(device).obstacle = MakeError(
      absl::StatusCode::kUnavailable, "WAITS_IN_LINE",
      absl::StrCat(state.queue.line.size(), " others wait for a worker"));
  line::Join(state, device, session);
  if (state.queue.line.size() <= scheduler::WaitQueue::kMaxTriedAtOnce) {
    placement::RetryUnplaced(state, &wakes);
  }
  return absl::OkStatus();
}

absl::Status Return(ClusterState& state, const StreamId& id,
                    const v1::LeaseReturn& returned) {
  DJINN_RETURN_IF_ERROR(CheckReturn(returned));
  Wakes wakes;
  MutexLock lock(&state.mu);
  const std::string& lease_id = returned.lease_id();
  DJINN_ASSIGN_OR_RETURN(Session* const session, state.FindOpenSession(id));
  if (!absl::c_linear_search(session->devices.returned, lease_id)) {
    session->devices.returned.push_back(lease_id);
  }
  if (session->devices.returned.size() > kMaxReturnedLeases) {
    session->devices.returned.pop_front();
  }
  if (const auto found = state.earlier.leases.find(lease_id);
      found != state.earlier.leases.end() &&
      found->second.lease.session_id() == session->id) {
    restored::Take(state, lease_id);
  }
  Lease* const lease = state.leases.Find(lease_id);
  // The client cannot know a lease that was not granted.
  if (lease == nullptr || lease->session_id != session->id ||
      lease->state != Lease::State::kGranted) {
    return absl::OkStatus();
  }
  if (returned.unreachable()) NoteUnreached(state, *lease);
  state.metrics.returned_leases.Add(
      {returned.unreachable() ? "unreachable" : "unused"});
  if (session->MayLog(state.clock->Monotonic())) {
    log::Info("lease returned", {{"lease", lease->id},
                                 {"session", log::ShortId(session->id)},
                                 {"worker", lease->worker_id},
                                 {"unreachable", returned.unreachable()}});
  }
  const absl::Status why =
      MakeError(absl::StatusCode::kAborted, "LEASE_RETURNED",
                "the client gave the virtual device's lease back");
  if (Lease* const to = state.leases.FindMigration(*lease)) {
    leases::DropMigration(state, to, why, &wakes);
  }
  if (lease->migrating()) {
    leases::DropMigration(state, lease, why, &wakes);
    return absl::OkStatus();
  }
  session->devices.lost.erase(lease->device);
  leases::Withdraw(state, *lease, &wakes);
  return absl::OkStatus();
}

void Expire(ClusterState& state, Session* session, absl::Duration now,
            line::Places* places, Wakes* wakes) {
  for (auto it = session->devices.pending.begin();
       it != session->devices.pending.end();) {
    auto& [device, pending] = *it;
    if (pending.deadline > now) {
      ++it;
      continue;
    }
    absl::Status why = pending.obstacle;
    if (const Lease* lease = state.leases.Find(pending.lease_id)) {
      why = MakeError(absl::StatusCode::kUnavailable, "WORKER_UNRESPONSIVE",
                      "worker " + lease->worker_id +
                          " did not acknowledge the lease in time",
                      {{"worker", lease->worker_id}});
      // The worker may have applied the lease already.
      leases::Withdraw(state, *lease, wakes);
    }
    if (pending.ticket != 0) {
      const auto wait = state.queue.line.WaitAt(
          line::PlaceOf(state, pending.ticket, now, places), now);
      if (wait.has_value()) why = WithRetryAfter(std::move(why), *wait);
    }
    line::Leave(state, &pending);
    notifications::Refuse(state, why, device, session, wakes);
    it = session->devices.pending.erase(it);
  }
}

}  // namespace djinn::coordinator::requests
