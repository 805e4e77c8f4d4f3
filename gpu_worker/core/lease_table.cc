#include "gpu_worker/core/lease_table.h"

#include "absl/strings/str_cat.h"
#include "common/constant_time.h"
#include "common/error.h"
#include "common/status_macros.h"

namespace djinn::worker {

absl::Status LeaseTable::Grant(const v1::LeaseRecord& record,
                               absl::Duration expires) {
  const v1::SessionLimits& limits = record.limits();
  if (record.lease_id().empty() || record.session_id().empty() ||
      record.token().empty() || limits.memory_bytes() == 0 ||
      limits.max_outstanding() == 0 || limits.max_outstanding_bytes() == 0 ||
      limits.max_structures() == 0 ||
      (record.has_tenant_limits() &&
       (record.tenant_limits().memory_bytes() == 0 ||
        record.tenant_limits().max_outstanding() == 0 ||
        record.tenant_limits().max_outstanding_bytes() == 0))) {
    return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_LEASE",
                     absl::StrCat("lease '", record.lease_id(),
                                  "' lacks an id, token or limit"));
  }
  leases_[record.lease_id()] = {record, expires};
  return absl::OkStatus();
}

absl::StatusOr<v1::LeaseRecord> LeaseTable::Find(
    const std::string& session_id, const std::string& token) const {
  const v1::LeaseRecord* presented = nullptr;
  for (const auto& [id, lease] : leases_) {
    if (lease.record.session_id() != session_id) continue;
    if (TokensEqual(lease.record.token(), token)) presented = &lease.record;
  }
  if (presented == nullptr) {
    return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_UNKNOWN",
                     "this worker granted no such lease");
  }
  return *presented;
}

absl::StatusOr<v1::LeaseRecord> LeaseTable::Authenticate(
    const std::string& session_id, const std::string& token,
    uint64_t epoch) const {
  DJINN_ASSIGN_OR_RETURN(v1::LeaseRecord presented, Find(session_id, token));
  uint64_t newest_epoch = 0;
  for (const auto& [id, lease] : leases_) {
    if (lease.record.session_id() != session_id) continue;
    newest_epoch = std::max(newest_epoch, lease.record.session_epoch());
  }
  if (epoch != presented.session_epoch() || epoch < newest_epoch) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "STALE_EPOCH",
        absl::StrCat("session epoch ", epoch, ", the lease is for ",
                     presented.session_epoch(), ", the worker knows ",
                     newest_epoch));
  }
  return presented;
}

std::vector<std::string> LeaseTable::TakeExpired(absl::Duration now) {
  std::vector<std::string> ids;
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (lease->second.expires > now) {
      ++lease;
      continue;
    }
    ids.push_back(lease->first);
    lease = leases_.erase(lease);
  }
  return ids;
}

std::vector<std::string> LeaseTable::TakeSession(
    const std::string& session_id) {
  std::vector<std::string> ids;
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (lease->second.record.session_id() != session_id) {
      ++lease;
      continue;
    }
    ids.push_back(lease->first);
    lease = leases_.erase(lease);
  }
  return ids;
}

bool LeaseTable::HasSession(const std::string& session_id) const {
  for (const auto& [id, lease] : leases_) {
    if (lease.record.session_id() == session_id) return true;
  }
  return false;
}

std::vector<v1::LeaseRecord> LeaseTable::List() const {
  std::vector<v1::LeaseRecord> records;
  for (const auto& [id, lease] : leases_) records.push_back(lease.record);
  return records;
}

}  // namespace djinn::worker
