// How the workers that could take a request are ranked.
//
// A policy is a file with a class and a line that registers it. It may live
// anywhere: whoever links a library with
//
//   const bool registered = RegisterPolicy(std::make_unique<MyPolicy>());
//
// (as alwayslink: nothing else refers to it) can name it in a configuration, a
// session, a request and a simulation.
#ifndef SCHEDULER_PLACEMENT_POLICY_H_
#define SCHEDULER_PLACEMENT_POLICY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/placement/terms.h"

namespace djinn::scheduler {

// Stateless, so that any thread may ask it.
class Policy {
 public:
  virtual ~Policy() = default;
  // "minimize_latency"
  virtual absl::string_view name() const = 0;
  // Lower is better. Among equals the one that is done first wins.
  virtual double Score(const Terms& terms) const = 0;
};

inline constexpr absl::string_view kDefaultPolicy = "minimize_latency";

// False, and nothing happens, when the name is taken. Thread-safe.
bool RegisterPolicy(std::unique_ptr<Policy> policy);
// InvalidArgument (POLICY_UNKNOWN) names those there are. What is found stays.
absl::StatusOr<const Policy*> FindPolicy(absl::string_view name);
// In order.
std::vector<std::string> PolicyNames();

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_POLICY_H_
