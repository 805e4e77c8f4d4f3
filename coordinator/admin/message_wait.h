// Describes what a session's next message waits for, in human-readable form.
#ifndef COORDINATOR_ADMIN_MESSAGE_WAIT_H_
#define COORDINATOR_ADMIN_MESSAGE_WAIT_H_

#include <string>

#include "djinn/v1/placement.pb.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator {

struct WaitTexts {
  // "for its turn: session 1a2b3c4d of tenant red is served".
  std::string what;
  std::string unblocked_by;
};
// Empty when it waits for nothing that is known here.
WaitTexts TextsOf(const v1::MessageWait& wait);

// False when it waits for nothing that is known here.
bool DescribeWait(const v1::MessageWait& wait, v1::PlacementGate* gate);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_ADMIN_MESSAGE_WAIT_H_
