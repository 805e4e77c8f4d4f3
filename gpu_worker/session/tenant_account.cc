#include "gpu_worker/session/tenant_account.h"

#include <algorithm>

namespace djinn::worker {

void TenantAccount::SetLimits(const v1::TenantLimits& limits) {
  memory_.SetLimit(limits.memory_bytes());
  MutexLock lock(&mu_);
  max_messages_ = limits.max_outstanding();
  max_bytes_ = limits.max_outstanding_bytes();
}

void TenantAccount::Join() {
  MutexLock lock(&mu_);
  ++attached_;
}

void TenantAccount::Leave() {
  MutexLock lock(&mu_);
  --attached_;
}

WindowWidth TenantAccount::Share(const v1::SessionLimits& limits) const {
  MutexLock lock(&mu_);
  const uint64_t sessions = std::max<uint64_t>(attached_, 1);
  const auto share = [sessions](uint64_t own, uint64_t total) {
    return std::min(own, std::max<uint64_t>(total / sessions, 1));
  };
  return {share(limits.max_outstanding(), max_messages_),
          share(limits.max_outstanding_bytes(), max_bytes_)};
}

}  // namespace djinn::worker
