// What keeps a worker from being chosen, whatever the policy.
#ifndef SCHEDULER_PLACEMENT_FILTERS_H_
#define SCHEDULER_PLACEMENT_FILTERS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/request.h"
#include "scheduler/placement/terms.h"

namespace djinn::scheduler {

struct Drop {
  // "memory", "kept", "cordon", "capability", "phase", "session".
  absl::string_view filter;
  // "has 1.0 GB available of 2.0 GB missing"
  std::string reason;
};

// The first filter that the worker does not pass. Memory comes behind what no
// room would help: who falls for it would be suitable. Who falls for being kept
// for another request, which comes last, has the room, too.
std::optional<Drop> Filter(const Request& request, const WorkerFacts& worker,
                           const Terms& terms);

// "90.9 MB"
std::string DescribeBytes(uint64_t bytes);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_FILTERS_H_
