// Tenants' queues as operators see, stop and resume them.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "coordinator/cluster.h"

namespace djinn::coordinator {
namespace {

absl::Status TenantUnknown(const std::string& name) {
  return MakeError(absl::StatusCode::kNotFound, "TENANT_UNKNOWN",
                   absl::StrCat("there is no \"", name, "\""));
}

}  // namespace

void Cluster::SetAside(PendingLease* pending, const std::string& tenant) {
  LeaveLine(pending);
  // No worker is looked for, nor room kept at one.
  pending->decision = {};
  pending->room = {};
  pending->obstacle = QueueStopped(tenant);
}

void Cluster::ForEachUnplaced(
    const std::string& tenant,
    absl::FunctionRef<void(MemberId, Session*)> visit) {
  using Asked = std::pair<absl::Duration, std::pair<std::string, MemberId>>;
  std::vector<Asked> unplaced;
  for (const auto& [id, session] : sessions_.all()) {
    if (session->tenant != tenant) continue;
    for (const auto& [device, pending] : session->pending) {
      if (!pending.lease_id.empty()) continue;
      unplaced.push_back({pending.asked, {id, device}});
    }
  }
  std::sort(unplaced.begin(), unplaced.end());
  for (const auto& [asked, whose] : unplaced) {
    visit(whose.second, sessions_.Find(whose.first));
  }
}

void Cluster::DrainStopped(Wakes* wakes) {
  for (const auto& [tenant, stop] : queue_stops_.all()) {
    if (!stop.drain) continue;
    std::vector<std::string> ends;
    for (const Lease* lease : leases_.OfTenant(tenant)) {
      ends.push_back(lease->id);
    }
    for (const std::string& id : ends) {
      Lease* const lease = leases_.Find(id);
      // It has gone with the one that it was to replace.
      if (lease == nullptr) continue;
      const std::string session_id = lease->session_id;
      const std::string worker_id = lease->worker_id;
      if (Lease* const to = leases_.FindMigration(*lease)) {
        DropMigration(to, QueueStopped(tenant), wakes);
      }
      if (!lease->migrating() && lease->state == Lease::State::kGranted) {
        sessions_.Find(session_id)->returning.insert(lease->device);
      }
      EndLease(lease, "QUEUE_STOPPED", wakes);
      LeaveWorker(session_id, worker_id, wakes);
    }
  }
}

absl::StatusOr<v1::QueueInfo> Cluster::StopQueue(const std::string& tenant,
                                                 bool drain) {
  if (tenants_->Find(tenant) == nullptr) return TenantUnknown(tenant);
  Wakes wakes;
  MutexLock lock(&mu_);
  queue_stops_.Add(tenant, drain, clock_->Now());
  log::Info(drain ? "queue stopped and drained" : "queue stopped",
            {{"tenant", tenant}});
  // What was offered and not taken yet is asked for again by this.
  DrainStopped(&wakes);
  ForEachUnplaced(tenant, [&](MemberId device, Session* session)
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                                LeaveUnplaced(device, QueueStopped(tenant),
                                              session, &wakes);
                              });
  // What it waited for, and what it had, is for others.
  RetryUnplaced(&wakes);
  return DescribeQueues()[tenant];
}

absl::StatusOr<v1::QueueInfo> Cluster::ResumeQueue(const std::string& tenant) {
  Wakes wakes;
  MutexLock lock(&mu_);
  const bool stopped = queue_stops_.Remove(tenant);
  if (!stopped && tenants_->Find(tenant) == nullptr) {
    return TenantUnknown(tenant);
  }
  if (stopped) {
    log::Info("queue resumed", {{"tenant", tenant}});
    ForEachUnplaced(
        tenant, [&](MemberId device,
                    Session* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          session->pending.at(device).obstacle =
              MakeError(absl::StatusCode::kUnavailable, "WAITS_IN_LINE",
                        "its queue was resumed, and it was not tried yet");
          JoinLine(device, session);
        });
    RetryUnplaced(&wakes);
  }
  v1::QueueInfo info = DescribeQueues()[tenant];
  info.set_tenant(tenant);
  return info;
}

std::map<std::string, v1::QueueInfo> Cluster::DescribeQueues() {
  std::map<std::string, v1::QueueInfo> queues;
  for (auto& [name, standing] : Standings()) {
    v1::QueueInfo& info = queues[name];
    *info.mutable_standing() = std::move(standing);
    const auto tenant = tenants_->Find(name);
    if (tenant == nullptr) continue;
    v1::TenantInfo quotas;
    DescribeQuota(*tenant, &quotas);
    info.set_cohort(quotas.cohort());
    info.set_weighted_share(quotas.weighted_share());
  }
  for (const auto& [name, stop] : queue_stops_.all()) {
    *queues[name].mutable_stop() = QueueStops::Describe(stop);
  }
  for (auto& [name, info] : queues) {
    info.set_tenant(name);
    info.set_line_length(static_cast<uint32_t>(line_.size()));
  }
  DescribeWaiting(&queues);
  return queues;
}

void Cluster::DescribeWaiting(std::map<std::string, v1::QueueInfo>* queues) {
  const absl::Duration now = clock_->Monotonic();
  LinePlaces places;
  std::map<std::string, std::map<std::string, uint32_t>> reasons;
  std::map<std::string, absl::Duration> oldest;
  for (const auto& [id, session] : sessions_.all()) {
    const auto found = queues->find(session->tenant);
    if (found == queues->end()) continue;
    v1::QueueInfo& info = found->second;
    for (const auto& [device, pending] : session->pending) {
      if (!pending.lease_id.empty()) continue;
      ++reasons[session->tenant][ErrorReason(pending.obstacle)];
      absl::Duration& wait = oldest[session->tenant];
      wait = std::max(wait, now - pending.asked);
      if (pending.ticket == 0) continue;
      const auto place =
          static_cast<uint32_t>(PlaceInLine(pending.ticket, now, &places));
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

Page<v1::QueueInfo> Cluster::Queues(const PageRange& range) {
  MutexLock lock(&mu_);
  std::map<std::string, v1::QueueInfo> queues = DescribeQueues();
  const auto slice = Slice(queues, range);
  Page<v1::QueueInfo> page;
  page.last_key = slice.last_key;
  for (const auto& entry : slice.items) page.items.push_back(entry->second);
  return page;
}

absl::StatusOr<v1::QueueInfo> Cluster::GetQueue(const std::string& tenant) {
  MutexLock lock(&mu_);
  std::map<std::string, v1::QueueInfo> queues = DescribeQueues();
  const auto found = queues.find(tenant);
  if (found == queues.end()) return TenantUnknown(tenant);
  return std::move(found->second);
}

}  // namespace djinn::coordinator
