#include "gpu_worker/session/state/tenant_account.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "gpu_worker/session/state/inbox.h"

namespace djinn::worker {

void TenantAccount::SetLimits(const v1::TenantLimits& limits) {
  memory_.SetLimits(MemoryLimits::Of(limits));
  MutexLock lock(&mu_);
  max_messages_ = limits.max_outstanding();
  max_bytes_ = limits.max_outstanding_bytes();
  constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  max_models_ = limits.has_max_models() ? limits.max_models() : kUnlimited;
  max_model_bytes_ =
      limits.has_model_bytes() ? limits.model_bytes() : kUnlimited;
}

absl::Status TenantAccount::AddModel() {
  MutexLock lock(&mu_);
  if (models_ >= max_models_) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, "MAX_MODELS",
        absl::StrCat("models of the tenant's sessions on this worker: limit ",
                     max_models_, ", used ", models_, ", asked 1"),
        {{"limit", absl::StrCat(max_models_)},
         {"used", absl::StrCat(models_)},
         {"asked", "1"}});
  }
  ++models_;
  return absl::OkStatus();
}

void TenantAccount::AdoptModel() {
  MutexLock lock(&mu_);
  ++models_;
}

void TenantAccount::RemoveModels(uint64_t count) {
  MutexLock lock(&mu_);
  models_ -= count;
}

uint64_t TenantAccount::max_model_bytes() const {
  MutexLock lock(&mu_);
  return max_model_bytes_;
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
