#include "scheduler/placement/policy.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/mutex.h"

namespace djinn::scheduler {
namespace {

constexpr double kWindowSeconds = 60;

// Chooses the least busy device: its busy fraction of the last minute, plus
// what its queue and the request add to the next one. This is
// least-loaded-first, on measured time instead of a connection count.
class LoadBalance : public Policy {
 public:
  absl::string_view name() const override { return "load_balance"; }
  double Score(const Terms& terms) const override {
    return terms.load + terms.finish_seconds() / kWindowSeconds;
  }
};

// Chooses the worker whose squared queue grows least: (q + p)^2 - q^2 = p (2q +
// p) seconds squared, for a queue q and a request that occupies the worker for
// p.
//
// This is the greedy rule for the L2 norm of loads on unrelated machines
// (Awerbuch, Azar, Grove, Kao, Krishnan, Vitter, FOCS 1995), which is a
// constant factor from the optimum without knowledge of the future. Compared
// with minimize_latency it weighs p more: a fast device waits for work that
// gains by it, and state is not copied to a worker only because its queue is a
// little shorter.
class MaximizeThroughput : public Policy {
 public:
  absl::string_view name() const override { return "maximize_throughput"; }
  double Score(const Terms& terms) const override {
    const double occupied = terms.occupied_seconds();
    return occupied * (2 * terms.queue_seconds + occupied);
  }
};

// Chooses the worker with the least cost of device time: price * (transfer +
// computing), in the unit of the prices.
//
// Waiting costs nothing, so requests queue up for a cheap device. Unknown work
// counts as one second, so that the lowest price wins.
class MinimizeCost : public Policy {
 public:
  absl::string_view name() const override { return "minimize_cost"; }
  double Score(const Terms& terms) const override { return terms.cost; }
};

// Chooses the worker that finishes the request first: queue + transfer +
// computing, in seconds.
//
// This is minimum completion time (Ibarra and Kim, J. ACM 1977), with the
// roofline's time instead of a table.
class MinimizeLatency : public Policy {
 public:
  absl::string_view name() const override { return "minimize_latency"; }
  double Score(const Terms& terms) const override {
    return terms.finish_seconds();
  }
};

std::vector<std::unique_ptr<Policy>> BuiltInPolicies() {
  std::vector<std::unique_ptr<Policy>> policies;
  policies.push_back(std::make_unique<LoadBalance>());
  policies.push_back(std::make_unique<MaximizeThroughput>());
  policies.push_back(std::make_unique<MinimizeCost>());
  policies.push_back(std::make_unique<MinimizeLatency>());
  return policies;
}

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
