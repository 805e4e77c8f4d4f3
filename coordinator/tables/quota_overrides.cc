#include "coordinator/tables/quota_overrides.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "coordinator/config/quota_trial.h"

namespace djinn::coordinator {

QuotaOverrides::OfTenant QuotaOverrides::Of(absl::string_view tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? OfTenant() : found->second;
}

void QuotaOverrides::Set(const std::string& tenant, OfTenant quotas) {
  if (quotas.empty()) {
    tenants_.erase(tenant);
  } else {
    tenants_[tenant] = std::move(quotas);
  }
}

std::vector<Tenant> QuotaOverrides::Over(std::vector<Tenant> configured) const {
  for (Tenant& tenant : configured) {
    const auto found = tenants_.find(tenant.name);
    if (found == tenants_.end()) continue;
    auto base = std::make_shared<const Tenant>(tenant);
    for (const auto& [resource, stored] : found->second) {
      if (!CheckResource(resource).ok()) continue;
      PutQuota(resource, stored.amounts(), &tenant);
    }
    tenant.configured = std::move(base);
  }
  return configured;
}

const v1::StoredQuota* QuotaOverrides::Find(absl::string_view tenant,
                                            absl::string_view resource) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return nullptr;
  const auto quota = found->second.find(resource);
  return quota == found->second.end() ? nullptr : &quota->second;
}

std::map<std::string, v1::StoredQuota> QuotaOverrides::Save() const {
  std::map<std::string, v1::StoredQuota> saved;
  for (const auto& [tenant, quotas] : tenants_) {
    for (const auto& [resource, stored] : quotas) {
      // The resource comes first, because a tenant's name may have a "/".
      saved[absl::StrCat(resource, "/", tenant)] = stored;
    }
  }
  return saved;
}

absl::Status QuotaOverrides::Restore(absl::string_view name,
                                     const v1::StoredQuota& stored) {
  const size_t slash = name.find('/');
  if (slash == absl::string_view::npos || slash == 0 ||
      slash + 1 == name.size()) {
    return MakeError(absl::StatusCode::kDataLoss, "STORE_CORRUPT",
                     absl::StrCat("\"", name, "\" is no name of a quota"));
  }
  tenants_[std::string(name.substr(slash + 1))]
          [std::string(name.substr(0, slash))] = stored;
  return absl::OkStatus();
}

}  // namespace djinn::coordinator
