// Declares the built-in policies, each of which has a file of its own.
#ifndef SCHEDULER_PLACEMENT_POLICIES_H_
#define SCHEDULER_PLACEMENT_POLICIES_H_

#include <memory>
#include <vector>

#include "scheduler/placement/policy.h"

namespace djinn::scheduler {

std::unique_ptr<Policy> MakeLoadBalance();
std::unique_ptr<Policy> MakeMaximizeThroughput();
std::unique_ptr<Policy> MakeMinimizeCost();
std::unique_ptr<Policy> MakeMinimizeLatency();

std::vector<std::unique_ptr<Policy>> BuiltInPolicies();

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_POLICIES_H_
