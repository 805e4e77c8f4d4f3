// Declares the built-in policies.
#ifndef SCHEDULER_PLACEMENT_POLICIES_H_
#define SCHEDULER_PLACEMENT_POLICIES_H_

#include <memory>
#include <vector>

#include "scheduler/placement/policy.h"

namespace djinn::scheduler {

std::vector<std::unique_ptr<Policy>> BuiltInPolicies();

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_POLICIES_H_
