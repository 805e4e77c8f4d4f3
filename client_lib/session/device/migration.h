// A device's way to another worker. What was queued before goes to the worker
// that there is; then the session leaves it, enters the other one, and goes on
// there, or here (docs/protocol_migration.md).
//
// The device's lock guards it.
#ifndef CLIENT_LIB_SESSION_DEVICE_MIGRATION_H_
#define CLIENT_LIB_SESSION_DEVICE_MIGRATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client_lib/session/model/wait.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

struct Migration {
  enum class State {
    kFinishing,  // what was queued before
    kLeaving,    // Leave is on its way
    kLeft,
  };
  v1::MigrationRequest request;
  State state = State::kFinishing;
  uint64_t works_before = 0;  // of the device, queued when it was asked for
  std::string ticket;
  uint64_t leave_sequence = 0;
  v1::Left left;
  // Of trying again to leave.
  std::optional<Deadline> patience;
  // Since when work waits for it.
  std::optional<absl::Duration> waits_since;
  // Not OK: the other worker is not to be had any more.
  absl::Status given_up;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_MIGRATION_H_
