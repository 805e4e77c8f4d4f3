#include "coordinator/config/tenants.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/net/bearer.h"

namespace djinn::coordinator {

void Tenants::Replace(std::vector<Tenant> tenants) {
  auto map = std::make_shared<Map>();
  for (Tenant& tenant : tenants) {
    std::string name = tenant.name;
    map->emplace(std::move(name),
                 std::make_shared<const Tenant>(std::move(tenant)));
  }
  MutexLock lock(&mu_);
  tenants_ = std::move(map);
}

scheduler::Amounts LeaseQuota(const Tenant& tenant) {
  const v1::SessionLimits& limits = tenant.limits;
  scheduler::Amounts amounts = {};
  const auto take = [&amounts](scheduler::Resource resource, uint64_t amount) {
    amounts[static_cast<size_t>(resource)] = static_cast<int64_t>(
        std::min<uint64_t>(amount, scheduler::Quota::kUnlimited));
  };
  const uint64_t memory = limits.memory_bytes();
  take(scheduler::Resource::kMemoryBytes, memory);
  take(scheduler::Resource::kContentBytes,
       limits.has_content_bytes() ? limits.content_bytes() : memory);
  take(scheduler::Resource::kStorageBytes,
       limits.has_storage_bytes() ? limits.storage_bytes() : memory);
  take(scheduler::Resource::kCacheBytes,
       limits.has_cache_bytes() ? limits.cache_bytes() : memory);
  take(scheduler::Resource::kOutstandingMessages, limits.max_outstanding());
  return amounts;
}

uint64_t LeaseMemory(const Tenant& tenant) {
  return std::min(tenant.limits.memory_bytes(), tenant.totals.memory_bytes());
}

Tenants::Snapshot Tenants::all() const {
  MutexLock lock(&mu_);
  return tenants_;
}

absl::StatusOr<std::shared_ptr<const Tenant>> Tenants::Authenticate(
    absl::string_view token) const {
  std::shared_ptr<const Tenant> found;
  const Snapshot tenants = all();
  for (const auto& [name, tenant] : *tenants) {
    if (TokensEqual(token, tenant->token)) found = tenant;
  }
  if (found == nullptr) {
    return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                     "no tenant has this token");
  }
  return found;
}

std::shared_ptr<const Tenant> Tenants::Find(absl::string_view name) const {
  const Snapshot tenants = all();
  const auto found = tenants->find(name);
  return found == tenants->end() ? nullptr : found->second;
}

std::vector<std::string> Tenants::NamesThat(bool Tenant::* agree) const {
  std::vector<std::string> names;
  const Snapshot tenants = all();
  for (const auto& [name, tenant] : *tenants) {
    if (tenant.get()->*agree) names.push_back(name);
  }
  return names;
}

}  // namespace djinn::coordinator
