#include "coordinator/admin/queues.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/log/log.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/queue_stops.h"
#include "coordinator/tables/session_table.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator::queues {
namespace {

// Calls `visit` for each of the tenant's requests without a worker, the oldest
// first.
void ForEachUnplaced(ClusterState& state, const std::string& tenant,
                     absl::FunctionRef<void(MemberId, Session*)> visit)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  using Asked = std::pair<absl::Duration, std::pair<std::string, MemberId>>;
  std::vector<Asked> unplaced;
  for (const auto& [id, session] : state.sessions.all()) {
    if (session->tenant != tenant) continue;
    for (const auto& [device, pending] : session->devices.pending) {
      if (!pending.lease_id.empty()) continue;
      unplaced.push_back({pending.asked, {id, device}});
    }
  }
  std::sort(unplaced.begin(), unplaced.end());
  for (const auto& [asked, whose] : unplaced) {
    visit(whose.second, state.sessions.Find(whose.first));
  }
}

void DescribeWaiting(ClusterState& state,
                     std::map<std::string, v1::QueueInfo>* queues)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Duration now = state.clock->Monotonic();
  line::Places places;
  std::map<std::string, std::map<std::string, uint32_t>> reasons;
  std::map<std::string, absl::Duration> oldest;
  for (const auto& [id, session] : state.sessions.all()) {
    const auto found = queues->find(session->tenant);
    if (found == queues->end()) continue;
    v1::QueueInfo& info = found->second;
    for (const auto& [device, pending] : session->devices.pending) {
      if (!pending.lease_id.empty()) continue;
      ++reasons[session->tenant][ErrorReason(pending.obstacle)];
      absl::Duration& wait = oldest[session->tenant];
      wait = std::max(wait, now - pending.asked);
      if (pending.ticket == 0) continue;
      const auto place = static_cast<uint32_t>(
          line::PlaceOf(state, pending.ticket, now, &places));
      if (info.first_place() == 0 || place < info.first_place()) {
        info.set_first_place(place);
      }
    }
  }
  for (const auto& [tenant, counts] : reasons) {
    v1::QueueInfo& info = queues->at(tenant);
    *info.mutable_oldest_wait() = ToProtoDuration(oldest.at(tenant));
    for (const auto& [reason, count] : counts) {
      v1::WaitingFor* const waiting = info.add_waiting();
      waiting->set_reason(reason);
      waiting->set_count(count);
    }
  }
}

// Returns the queues of all tenants, including stopped ones of tenants that are
// not configured any more, by name.
std::map<std::string, v1::QueueInfo> DescribeAll(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  std::map<std::string, v1::QueueInfo> queues;
  for (auto& [name, standing] : views::Standings(state)) {
    v1::QueueInfo& info = queues[name];
    *info.mutable_standing() = std::move(standing);
    const auto tenant = state.tenants->Find(name);
    if (tenant == nullptr) continue;
    v1::TenantInfo quotas;
    quota::Describe(state, *tenant, &quotas);
    info.set_cohort(quotas.cohort());
    info.set_weighted_share(quotas.weighted_share());
  }
  for (const auto& [name, stop] : state.queue.stops.all()) {
    *queues[name].mutable_stop() = QueueStops::Describe(stop);
  }
  for (auto& [name, info] : queues) {
    info.set_tenant(name);
    info.set_line_length(static_cast<uint32_t>(state.queue.line.size()));
  }
  DescribeWaiting(state, &queues);
  return queues;
}

}  // namespace

absl::StatusOr<v1::QueueInfo> Stop(ClusterState& state,
                                   const std::string& tenant, bool drain) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  if (state.tenants->Find(tenant) == nullptr) return Unknown("TENANT", tenant);
  state.queue.stops.Add(tenant, drain, state.clock->Now());
  log::Info(drain ? "queue stopped and drained" : "queue stopped",
            {{"tenant", tenant}});
  // Offered leases that the client has not got yet become requests again.
  tenants::DrainStopped(state, &wakes);
  ForEachUnplaced(state, tenant,
                  [&](MemberId device, Session* session)
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
                        line::LeaveUnplaced(state, device, QueueStopped(tenant),
                                            session, &wakes);
                      });
  // The workers of the ended leases are free for other tenants.
  placement::RetryUnplaced(state, &wakes);
  return DescribeAll(state)[tenant];
}

absl::StatusOr<v1::QueueInfo> Resume(ClusterState& state,
                                     const std::string& tenant) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  const bool stopped = state.queue.stops.Remove(tenant);
  if (!stopped && state.tenants->Find(tenant) == nullptr) {
    return Unknown("TENANT", tenant);
  }
  if (stopped) {
    log::Info("queue resumed", {{"tenant", tenant}});
    ForEachUnplaced(
        state, tenant,
        [&](MemberId device, Session* session)
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
              session->devices.pending.at(device).obstacle =
                  MakeError(absl::StatusCode::kUnavailable, "WAITS_IN_LINE",
                            "its queue was resumed, and it was not tried yet");
              line::Join(state, device, session);
            });
    placement::RetryUnplaced(state, &wakes);
  }
  v1::QueueInfo info = DescribeAll(state)[tenant];
  info.set_tenant(tenant);
  return info;
}

absl::StatusOr<v1::QueueInfo> Get(ClusterState& state,
                                  const std::string& tenant) {
  MutexLock lock(&state.mu);
  std::map<std::string, v1::QueueInfo> queues = DescribeAll(state);
  const auto found = queues.find(tenant);
  if (found == queues.end()) return Unknown("TENANT", tenant);
  return std::move(found->second);
}

Page<v1::QueueInfo> List(ClusterState& state, const PageRange& range) {
  MutexLock lock(&state.mu);
  std::map<std::string, v1::QueueInfo> queues = DescribeAll(state);
  const auto slice = Slice(queues, range);
  Page<v1::QueueInfo> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) page.items.push_back(entry->second);
  return page;
}

}  // namespace djinn::coordinator::queues
