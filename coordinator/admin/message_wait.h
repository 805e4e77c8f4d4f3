// Describes what a session's next message waits for, in human-readable form.
#ifndef COORDINATOR_ADMIN_MESSAGE_WAIT_H_
#define COORDINATOR_ADMIN_MESSAGE_WAIT_H_

#include <string>

#include "djinn/v1/placement.pb.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator {

struct WaitTexts {
  // Completes "waits", such as "for its turn: session 1a2b3c4d of tenant red is
  // served".
  std::string what;
  std::string unblocked_by;
};
// Returns texts for the wait; empty ones when its kind is not known here.
WaitTexts TextsOf(const v1::MessageWait& wait);

// Describes the wait in `gate`. Returns false, and changes nothing, when its
// kind is not known here.
bool DescribeWait(const v1::MessageWait& wait, v1::PlacementGate* gate);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_ADMIN_MESSAGE_WAIT_H_
