#include "scheduler/placement/policy.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "scheduler/placement/policies.h"

namespace djinn::scheduler {
namespace {

struct Registry {
  Mutex mu;
  std::map<std::string, std::unique_ptr<Policy>, std::less<>> policies
      ABSL_GUARDED_BY(mu);

  Registry() {
    MutexLock lock(&mu);
    for (std::unique_ptr<Policy>& policy : BuiltInPolicies()) {
      std::string name(policy->name());
      policies.emplace(std::move(name), std::move(policy));
    }
  }
};

// Never destroyed: others' static initialisers use it, in any order.
Registry& GetRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace

bool RegisterPolicy(std::unique_ptr<Policy> policy) {
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  std::string name(policy->name());
  return registry.policies.try_emplace(std::move(name), std::move(policy))
      .second;
}

absl::StatusOr<const Policy*> FindPolicy(absl::string_view name) {
  {
    Registry& registry = GetRegistry();
    MutexLock lock(&registry.mu);
    const auto found = registry.policies.find(name);
    if (found != registry.policies.end()) return found->second.get();
  }
  return MakeError(
      absl::StatusCode::kInvalidArgument, "POLICY_UNKNOWN",
      absl::StrCat("there is no placement policy \"", name, "\": expected ",
                   absl::StrJoin(PolicyNames(), ", ")));
}

std::vector<std::string> PolicyNames() {
  Registry& registry = GetRegistry();
  MutexLock lock(&registry.mu);
  std::vector<std::string> names;
  for (const auto& [name, policy] : registry.policies) names.push_back(name);
  return names;
}

}  // namespace djinn::scheduler
