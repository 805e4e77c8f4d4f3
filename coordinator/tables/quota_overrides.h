// Records the quotas that operators set in place of the configuration's.
// Includes those of tenants that are not configured any more, since they may be
// configured again.
//
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_TABLES_QUOTA_OVERRIDES_H_
#define COORDINATOR_TABLES_QUOTA_OVERRIDES_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/config/tenants.h"
#include "djinn/v1/coordinator_state.pb.h"
#include "djinn/v1/quota.pb.h"

namespace djinn::coordinator {

class QuotaOverrides {
 public:
  // The quotas of one tenant that are set, by resource.
  using OfTenant = std::map<std::string, v1::StoredQuota, std::less<>>;

  // Returns the tenant's quotas that are set; empty when there are none.
  OfTenant Of(absl::string_view tenant) const;
  // Replaces all of them.
  void Set(const std::string& tenant, OfTenant quotas);

  bool empty() const { return tenants_.empty(); }

  // Returns the tenants with these quotas in place of the configured ones.
  std::vector<Tenant> Over(std::vector<Tenant> configured) const;

  // Returns the quota; null when the tenant's quota of the resource is not set.
  const v1::StoredQuota* Find(absl::string_view tenant,
                              absl::string_view resource) const;

  // Save() returns all quotas under the names with which they are stored, and
  // Restore() adds one of them. Restore() returns DataLoss (STORE_CORRUPT) for
  // a name that is none. It keeps, but does not apply, quotas of resources that
  // this program does not know.
  std::map<std::string, v1::StoredQuota> Save() const;
  absl::Status Restore(absl::string_view name, const v1::StoredQuota& stored);

 private:
  // By tenant. No entry is empty.
  std::map<std::string, OfTenant, std::less<>> tenants_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_QUOTA_OVERRIDES_H_
