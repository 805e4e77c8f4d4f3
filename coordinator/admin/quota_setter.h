// Sets quotas of tenants in place of the configuration's, while the coordinator
// runs.
//
// A change is in force when the call returns, and the store has it. If the
// store does not take it, the quotas become again what they were.
//
// Thread-safe; one change at a time. A call may wait for the store's disk.
#ifndef COORDINATOR_ADMIN_QUOTA_SETTER_H_
#define COORDINATOR_ADMIN_QUOTA_SETTER_H_

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/quota_overrides.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/quota.pb.h"

namespace djinn::coordinator {

class QuotaSetter {
 public:
  // `keep` writes the cluster's state to its store, and returns the errors of
  // Store::PutIf(). `cluster` must outlive this.
  QuotaSetter(ClusterState* cluster, std::function<absl::Status()> keep);

  // Set() sets quotas in the name of an operator; Unset() returns quotas to the
  // configuration's. They return the tenant as it is now, or the errors of
  // Admin.SetQuota and Admin.UnsetQuota in admin.proto. A tenant that is not
  // configured any more has nothing but its name.
  absl::StatusOr<v1::TenantInfo> Set(const v1::SetQuotaRequest& request,
                                     absl::string_view who);
  absl::StatusOr<v1::TenantInfo> Unset(const v1::UnsetQuotaRequest& request);

  // Describes the tenant's quotas in one line for the audit log.
  static std::string Text(const v1::TenantInfo& tenant);
  std::string TextOf(const std::string& tenant);

 private:
  // Has `change` change the tenant's quotas, puts them into force, and keeps
  // them. `change` gets null for a tenant that is not configured.
  absl::Status Change(
      const std::string& tenant,
      absl::FunctionRef<absl::Status(const Tenant*, QuotaOverrides::OfTenant*)>
          change);
  absl::StatusOr<v1::TenantInfo> Describe(const std::string& tenant);

  ClusterState* const cluster_;
  const std::function<absl::Status()> keep_;

  // Held for a whole change.
  Mutex changing_mu_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_ADMIN_QUOTA_SETTER_H_
