// Ranks the workers that could take a request.
//
// A policy is a file with a class and a line that registers it. It may be
// defined anywhere. A program that links a library with
//
//   const bool registered = RegisterPolicy(std::make_unique<MyPolicy>());
//
// (declared alwayslink, since nothing else refers to it) can name the policy in
// a configuration, a session, a request and a simulation.
#ifndef SCHEDULER_PLACEMENT_POLICY_H_
#define SCHEDULER_PLACEMENT_POLICY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/placement/terms.h"

namespace djinn::scheduler {

// Interface of a policy. Stateless, so that any thread may call it.
class Policy {
 public:
  virtual ~Policy() = default;
  // The name in configurations, such as "minimize_latency".
  virtual absl::string_view name() const = 0;
  // Returns the score of a worker; lower is better. Ties go to the earlier
  // finish.
  virtual double Score(const Terms& terms) const = 0;
};

inline constexpr absl::string_view kDefaultPolicy = "minimize_latency";

// Registers a policy. Returns false and does nothing when its name is taken.
// Thread-safe.
bool RegisterPolicy(std::unique_ptr<Policy> policy);
// Returns the policy; the pointer stays valid. InvalidArgument (POLICY_UNKNOWN)
// lists the registered names.
absl::StatusOr<const Policy*> FindPolicy(absl::string_view name);
// Returns all registered names, sorted.
std::vector<std::string> PolicyNames();

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_POLICY_H_
