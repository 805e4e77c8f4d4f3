// Hard conditions that exclude a worker from a placement, whatever the policy.
#ifndef SCHEDULER_PLACEMENT_FILTERS_H_
#define SCHEDULER_PLACEMENT_FILTERS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/terms.h"

namespace djinn::scheduler {

struct Drop {
  // "memory", "kept", "cordon", "failure", "capability", "phase", "session".
  absl::string_view filter;
  // "has 1.0 GB available of 2.0 GB missing"
  std::string reason;
};

// Returns the first filter that the worker fails, or nothing. The memory filter
// comes after every filter that more free memory cannot pass, so a worker that
// fails it is otherwise suitable. The filter "kept" (reserved for another
// request) comes last, so a worker that fails it has enough memory.
std::optional<Drop> Filter(const Request& request, const WorkerFacts& worker,
                           const Terms& terms);

// Formats a size as human-readable text, such as "90.9 MB".
std::string DescribeBytes(uint64_t bytes);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_FILTERS_H_
