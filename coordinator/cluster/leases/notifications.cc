#include "coordinator/cluster/leases/notifications.h"

#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/retry_after.h"
#include "common/log/log.h"

namespace djinn::coordinator::notifications {

void Send(v1::SessionResponse response, Session* session, Wakes* wakes) {
  session->link.outbox.push_back(std::move(response));
  wakes->Add(session->link.waker);
}

void Refuse(ClusterState& state, const absl::Status& why, MemberId device,
            Session* session, Wakes* wakes) {
  v1::SessionResponse response;
  v1::LeaseRefused* const refused = response.mutable_refused();
  refused->set_virtual_device(device.virtual_device);
  refused->set_member(device.member);
  refused->set_code(static_cast<int>(why.code()));
  refused->set_reason(ErrorReason(why));
  refused->set_message(std::string(why.message()));
  const std::optional<absl::Duration> retry_after = RetryAfter(why);
  if (retry_after.has_value()) {
    *refused->mutable_retry_after() = ToProtoDuration(*retry_after);
  }
  Send(std::move(response), session, wakes);
  state.metrics.CountRejection(session->tenant, why);
  if (!session->pace.logged_refusals.Take(state.clock->Monotonic())) {
    ++session->pace.unlogged_refusals;
    return;
  }
  log::Warning(
      "lease refused",
      {{"session", log::ShortId(session->id)},
       {"tenant", session->tenant},
       {"device", device.virtual_device},
       {"member", device.member},
       {"unlogged_before", std::exchange(session->pace.unlogged_refusals, 0)},
       {"error", why}});
}

void Touch(Worker* worker, Wakes* wakes) {
  worker->link.dirty = true;
  wakes->Add(worker->link.waker);
}

void List(Lease* lease, Worker* worker, Wakes* wakes) {
  worker->link.unlisted.insert(lease->id);
  Touch(worker, wakes);
}

void SignAgain(ClusterState& state, Lease* lease, Wakes* wakes) {
  lease->next_signing = absl::InfinitePast();
  List(lease, state.workers.Find(lease->worker_id), wakes);
}

void Drop(const std::string& session_id, Worker* worker, Wakes* wakes) {
  worker->ends.drops.Add(session_id);
  Touch(worker, wakes);
}

void LeaveWorker(ClusterState& state, const std::string& session_id,
                 const std::string& worker_id, Wakes* wakes) {
  Worker* const worker = state.workers.Find(worker_id);
  if (worker == nullptr) return;
  for (const Lease* lease : state.leases.OfSession(session_id)) {
    // The next message tells the worker which lease has ended.
    if (lease->worker_id == worker_id) return Touch(worker, wakes);
  }
  Drop(session_id, worker, wakes);
}

void ListPeers(ClusterState& state, const Lease& lease, Wakes* wakes) {
  Worker* const worker = state.workers.Find(lease.worker_id);
  for (const Lease* lease_elsewhere :
       state.leases.OfSession(lease.session_id)) {
    Worker* const other = state.workers.Find(lease_elsewhere->worker_id);
    if (other == worker) continue;
    if (!worker->KnowsPeer(*other)) {
      worker->link.new_peers.insert(other->id);
      Touch(worker, wakes);
    }
    if (!other->KnowsPeer(*worker)) {
      other->link.new_peers.insert(worker->id);
      Touch(other, wakes);
    }
  }
}

}  // namespace djinn::coordinator::notifications
