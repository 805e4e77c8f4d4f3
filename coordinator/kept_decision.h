// A decision about a virtual device, kept to be explained.
#ifndef COORDINATOR_KEPT_DECISION_H_
#define COORDINATOR_KEPT_DECISION_H_

#include <memory>

#include "absl/time/time.h"
#include "scheduler/placement/placement.h"

namespace djinn::coordinator {

struct KeptDecision {
  // Null when there was none.
  std::shared_ptr<const scheduler::Decision> decision;
  // Who asked for its policy: "request", "session", "tenant" or "cluster".
  const char* policy_source = "";
  // Monotonic.
  absl::Duration time;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_KEPT_DECISION_H_
