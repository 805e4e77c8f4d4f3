#include "coordinator/console/lease_history.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "common/base/proto_duration.h"

namespace djinn::console {
namespace {

// Two reports of one migration, whose ages were rounded and travelled, differ
// by less in the time of its decision. Two migrations of one device to the same
// worker are further apart.
constexpr absl::Duration kSameDecision = absl::Milliseconds(500);

// Time within which the coordinator finds a worker lost that a client could not
// reach.
constexpr absl::Duration kLately = absl::Minutes(1);

bool Same(const SeenMigration& seen, const v1::SessionInfo& session,
          const v1::MigrationInfo& info, absl::Time decided) {
  return seen.session == session.session_id() &&
         seen.info.virtual_device() == info.virtual_device() &&
         seen.info.from_worker_id() == info.from_worker_id() &&
         seen.info.to_worker_id() == info.to_worker_id() &&
         absl::AbsDuration(seen.decided - decided) < kSameDecision;
}

}  // namespace

void LeaseHistory::Update(const v1::ListLeasesResponse& leases,
                          const v1::ListSessionsResponse& sessions,
                          absl::Time now) {
  absl::flat_hash_set<absl::string_view> present;
  for (const v1::LeaseInfo& lease : leases.leases()) {
    present.insert(lease.lease_id());
    LeaseSpan& span = open_[lease.lease_id()];
    if (span.lease.empty()) {
      span.lease = lease.lease_id();
      span.session = lease.session_id();
      span.tenant = lease.tenant();
      span.worker = lease.worker_id();
      span.placement_reason = lease.placement_reason();
      span.virtual_device = lease.virtual_device();
      span.member = lease.member();
      span.began = now - FromProtoDuration(lease.age());
    }
    span.device_time = FromProtoDuration(lease.lease_use().device_time());
  }
  std::vector<std::string> gone;
  for (const auto& [id, span] : open_) {
    if (!present.contains(id)) gone.push_back(id);
  }
  for (const std::string& id : gone) {
    LeaseSpan span = std::move(open_.extract(id).mapped());
    span.ended = now;
    AddEnded(std::move(span));
  }
  for (const v1::SessionInfo& session : sessions.sessions()) {
    for (const v1::MigrationInfo& info : session.migrations()) {
      NoteMigration(session, info, now);
    }
  }
}

void LeaseHistory::NoteLostWorkers(const v1::ListWorkersResponse& workers,
                                   absl::Time now) {
  absl::flat_hash_set<absl::string_view> lost;
  for (const v1::WorkerInfo& worker : workers.workers()) {
    if (worker.state() == v1::WorkerInfo::LOST) lost.insert(worker.worker_id());
  }
  if (lost.empty()) return;
  for (auto span = ended_.rbegin(); span != ended_.rend(); ++span) {
    if (now - span->ended > kLately) break;
    if (span->end_reason.empty() && lost.contains(span->worker)) {
      span->end_reason = "WORKER_LOST";
    }
  }
}

void LeaseHistory::NoteMigration(const v1::SessionInfo& session,
                                 const v1::MigrationInfo& info,
                                 absl::Time now) {
  const absl::Time decided = now - FromProtoDuration(info.age());
  const auto known = std::find_if(
      migrations_.rbegin(), migrations_.rend(),
      [&](const auto& seen) { return Same(seen, session, info, decided); });
  if (known != migrations_.rend()) {
    known->info = info;
    return;
  }
  migrations_.push_back(
      {session.session_id(), session.tenant(), info, decided});
  if (migrations_.size() > capacity_) migrations_.pop_front();
}

void LeaseHistory::Explain(const v1::SessionExplanation& explanation,
                           absl::Time now) {
  for (const v1::DeviceExplanation& device : explanation.devices()) {
    if (!device.has_lost_lease()) continue;
    const v1::LostLease& lost = device.lost_lease();
    auto span = std::find_if(
        ended_.rbegin(), ended_.rend(),
        [&](const LeaseSpan& each) { return each.lease == lost.lease_id(); });
    if (span == ended_.rend()) {
      // The lease ended before the console looked for the first time.
      LeaseSpan old;
      old.lease = lost.lease_id();
      old.session = explanation.session_id();
      old.tenant = explanation.tenant();
      old.worker = lost.worker_id();
      old.virtual_device = device.virtual_device();
      old.member = device.member();
      old.ended = now - FromProtoDuration(lost.age());
      old.began = old.ended;
      AddEnded(std::move(old));
      span = ended_.rbegin();
    }
    span->end_reason = lost.reason();
    span->for_tenant = lost.for_tenant();
    span->device_time = FromProtoDuration(lost.lost());
  }
}

void LeaseHistory::AddEnded(LeaseSpan span) {
  ended_.push_back(std::move(span));
  if (ended_.size() > capacity_) ended_.pop_front();
}

}  // namespace djinn::console
