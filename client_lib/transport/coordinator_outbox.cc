#include "client_lib/transport/coordinator_outbox.h"

#include "absl/algorithm/container.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/retry_after.h"

namespace djinn {
namespace {

// Limit on reports that wait to be sent.
constexpr size_t kMaxReports = 64;
// Limit on returned leases that the link sends once more after it attaches:
// several for each virtual device.
constexpr size_t kMaxReturnedLeases = 256;

bool IsReport(const v1::SessionRequest& request) {
  return request.has_recovered() || request.has_checkpoint() ||
         request.has_lineage();
}

absl::Status WhyRefused(const v1::LeaseRefused& refused) {
  absl::Status why = MakeError(
      refused.code() == 0 ? absl::StatusCode::kUnavailable
                          : static_cast<absl::StatusCode>(refused.code()),
      refused.reason(), refused.message());
  if (!refused.has_retry_after()) return why;
  return WithRetryAfter(std::move(why),
                        FromProtoDuration(refused.retry_after()));
}

}  // namespace

void CoordinatorOutbox::TakeLeaseAnswer(v1::SessionResponse response) {
  const std::string& lease_id = response.granted().lease().lease_id();
  if (response.has_granted() &&
      absl::c_any_of(returned_, [&](const Returned& returned) {
        return returned.lease.lease_id() == lease_id;
      })) {
    return;  // requested on two streams, and answered twice
  }
  const auto found =
      leases_.find(response.has_granted()
                       ? DeviceAndMember(response.granted().virtual_device(),
                                         response.granted().member())
                       : DeviceAndMember(response.refused().virtual_device(),
                                         response.refused().member()));
  if (found == leases_.end()) {
    // No thread waits for the answer any more.
    if (response.has_granted() && !held_leases_.contains(lease_id)) {
      GiveBack(lease_id, /*unreachable=*/false);
    }
  } else if (response.has_granted()) {
    held_leases_.insert(lease_id);
    found->second->result = std::move(*response.mutable_granted());
  } else {
    found->second->result = WhyRefused(response.refused());
  }
}

void CoordinatorOutbox::ReturnLease(const std::string& lease_id,
                                    bool unreachable) {
  if (held_leases_.erase(lease_id) > 0) GiveBack(lease_id, unreachable);
}

void CoordinatorOutbox::GiveBack(const std::string& lease_id,
                                 bool unreachable) {
  if (returned_.size() == kMaxReturnedLeases) {
    // Prefers to drop a lease whose return the coordinator has received.
    const auto told = absl::c_find_if(
        returned_, [](const Returned& returned) { return returned.sent; });
    returned_.erase(told == returned_.end() ? returned_.begin() : told);
  }
  v1::LeaseReturn& lease = returned_.emplace_back().lease;
  lease.set_lease_id(lease_id);
  lease.set_unreachable(unreachable);
}

void CoordinatorOutbox::AddOutcome(uint32_t virtual_device,
                                   v1::MigrationOutcome outcome) {
  held_leases_.erase(outcome.has_failure() ? outcome.to_lease_id()
                                           : outcome.from_lease_id());
  migrated_[virtual_device] = {std::move(outcome)};
}

void CoordinatorOutbox::AddReport(v1::SessionRequest report) {
  if (reports_.size() == kMaxReports) {
    reports_.pop_front();
    ++dropped_reports_;
  }
  reports_.push_back(std::move(report));
}

void CoordinatorOutbox::KeepReport(v1::SessionRequest report) {
  if (!IsReport(report)) return;
  if (reports_.size() == kMaxReports) {
    ++dropped_reports_;
  } else {
    reports_.push_front(std::move(report));
  }
}

void CoordinatorOutbox::BeginStream() {
  for (auto& [device, wait] : leases_) wait->sent = false;
  for (auto& [device, migrated] : migrated_) migrated.sent = false;
  for (Returned& returned : returned_) returned.sent = false;
}

std::optional<v1::SessionRequest> CoordinatorOutbox::Next(
    const SessionUrgency& urgency) {
  v1::SessionRequest request;
  // Outcomes of migrations come first, because later messages may be about the
  // lease that the device uses now.
  for (auto& [device, migrated] : migrated_) {
    if (migrated.sent) continue;
    migrated.sent = true;
    *request.mutable_migrated() = migrated.outcome;
    return request;
  }
  // Returns come before requests, which may need the workers that they free.
  for (Returned& returned : returned_) {
    if (returned.sent) continue;
    returned.sent = true;
    *request.mutable_returned() = returned.lease;
    return request;
  }
  for (auto& [device, wait] : leases_) {
    if (wait->sent) continue;
    wait->sent = true;
    *request.mutable_lease() = wait->request;
    return request;
  }
  SessionUrgency::Said said = urgency.said();
  if (said.version != told_urgency_) {
    told_urgency_ = said.version;
    *request.mutable_urgency() = std::move(said.urgency);
    return request;
  }
  if (!reports_.empty()) {
    request = std::move(reports_.front());
    reports_.pop_front();
    return request;
  }
  if (graphs_.Front() != nullptr) return *graphs_.Front();
  return std::nullopt;
}

}  // namespace djinn
