#include "scheduler/placement/policies.h"

namespace djinn::scheduler {

std::vector<std::unique_ptr<Policy>> BuiltInPolicies() {
  std::vector<std::unique_ptr<Policy>> policies;
  policies.push_back(MakeLoadBalance());
  policies.push_back(MakeMaximizeThroughput());
  policies.push_back(MakeMinimizeCost());
  policies.push_back(MakeMinimizeLatency());
  return policies;
}

}  // namespace djinn::scheduler
