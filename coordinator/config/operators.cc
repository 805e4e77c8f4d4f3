#include "coordinator/config/operators.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/hash/hash.h"

namespace djinn::coordinator {
namespace {

constexpr Role kRoles[] = {Role::kViewer, Role::kOperator, Role::kAdmin};

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kViewer:
      return "viewer";
    case Role::kOperator:
      return "operator";
    case Role::kAdmin:
      break;
  }
  return "admin";
}

bool ParseRole(absl::string_view name, Role* role) {
  for (const Role one : kRoles) {
    if (RoleName(one) != name) continue;
    *role = one;
    return true;
  }
  return false;
}

Credentials::Credentials(std::vector<Operator> operators,
                         std::string join_token)
    : operators_(std::move(operators)), join_token_(std::move(join_token)) {}

void Credentials::Set(std::vector<Operator> operators, std::string join_token) {
  MutexLock lock(&mu_);
  operators_ = std::move(operators);
  join_token_ = std::move(join_token);
}

absl::StatusOr<Operator> Credentials::Admit(absl::string_view token,
                                            Role needed) const {
  MutexLock lock(&mu_);
  for (const Operator& one : operators_) {
    if (!TokensEqual(token, one.token)) continue;
    if (one.role >= needed) return one;
    return MakeError(absl::StatusCode::kPermissionDenied, "ROLE_REQUIRED",
                     absl::StrCat(one.name, " is ", RoleName(one.role),
                                  "; this needs ", RoleName(needed)),
                     {{"role", std::string(RoleName(needed))}});
  }
  return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                   "not the admin token, and no operator's");
}

bool Credentials::IsJoinToken(absl::string_view token) const {
  MutexLock lock(&mu_);
  return TokensEqual(token, join_token_);
}

}  // namespace djinn::coordinator
