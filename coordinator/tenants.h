// Who may use the cluster: tenants by their credentials.
#ifndef COORDINATOR_TENANTS_H_
#define COORDINATOR_TENANTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/credit_ledger.h"
#include "djinn/v1/types.pb.h"

namespace djinn::coordinator {

struct Tenant {
  std::string name;
  // Secret.
  std::string token;
  uint32_t max_sessions = 0;
  // Of each session, and of all of them, on one worker.
  v1::SessionLimits limits;
  v1::TenantLimits totals;
  CreditLimits credits;
};

// Immutable, hence thread-safe.
class Tenants {
 public:
  explicit Tenants(std::vector<Tenant> tenants)
      : tenants_(std::move(tenants)) {}

  // The tenant that owns the token; how long it takes does not depend on which
  // one, nor on how much of the token is right. Unauthenticated
  // (TOKEN_UNKNOWN). The result lives as long as this object.
  absl::StatusOr<const Tenant*> Authenticate(absl::string_view token) const;

  // Null when there is none.
  const Tenant* Find(absl::string_view name) const;

  const std::vector<Tenant>& all() const { return tenants_; }

 private:
  const std::vector<Tenant> tenants_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TENANTS_H_
