// Knows who may operate the cluster, and with which token workers join it.
#ifndef COORDINATOR_CONFIG_OPERATORS_H_
#define COORDINATOR_CONFIG_OPERATORS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace djinn::coordinator {

// The rights of an operator. Each role includes those before it.
enum class Role {
  kViewer,    // see everything, change nothing
  kOperator,  // cordon, drain and migrate; stop and resume queues; set quotas
  kAdmin      // change the configuration that is in force
};

// Returns "viewer", "operator" or "admin".
absl::string_view RoleName(Role role);
// Reads such a name. Returns false for any other text.
bool ParseRole(absl::string_view name, Role* role);

struct Operator {
  // Name in the audit log.
  std::string name;
  Role role = Role::kViewer;
  // Secret.
  std::string token;

  friend bool operator==(const Operator&, const Operator&) = default;
};

// The tokens that are in force. A reload replaces them.
//
// Thread-safe.
class Credentials {
 public:
  Credentials(std::vector<Operator> operators, std::string join_token);

  void Set(std::vector<Operator> operators, std::string join_token);

  // Returns the operator with this token, whose role includes `needed`. Errors:
  // Unauthenticated (TOKEN_UNKNOWN); PermissionDenied (ROLE_REQUIRED), which
  // names both roles.
  absl::StatusOr<Operator> Admit(absl::string_view token, Role needed) const;
  bool IsJoinToken(absl::string_view token) const;

 private:
  mutable Mutex mu_;
  std::vector<Operator> operators_ ABSL_GUARDED_BY(mu_);
  std::string join_token_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_OPERATORS_H_
