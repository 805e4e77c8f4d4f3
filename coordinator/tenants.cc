#include "coordinator/tenants.h"

#include "common/error.h"
#include "common/net/bearer.h"

namespace djinn::coordinator {

absl::StatusOr<const Tenant*> Tenants::Authenticate(
    absl::string_view token) const {
  const Tenant* found = nullptr;
  for (const Tenant& tenant : tenants_) {
    if (TokensEqual(token, tenant.token)) found = &tenant;
  }
  if (found == nullptr) {
    return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                     "no tenant has this token");
  }
  return found;
}

const Tenant* Tenants::Find(absl::string_view name) const {
  for (const Tenant& tenant : tenants_) {
    if (tenant.name == name) return &tenant;
  }
  return nullptr;
}

}  // namespace djinn::coordinator
