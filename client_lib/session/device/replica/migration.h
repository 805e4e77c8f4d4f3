// Holds the state of the migration of a device to another worker (migration.cc,
// declared in replica.h). Work queued before the
// request goes to the current worker. Then the session leaves that worker,
// enters the other one, and continues there, or stays if it cannot
// (docs/design/protocols.md).
//
// The connection's lock guards it.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_MIGRATION_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_MIGRATION_H_

#include <cstdint>
#include <memory>
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
    kFinishing,  // work queued before the request
    kLeaving,    // Leave is on its way
    kLeft,
  };
  v1::MigrationRequest request;
  State state = State::kFinishing;
  uint64_t works_before = 0;  // the device's works queued before the request
  std::string ticket;
  uint64_t leave_sequence = 0;
  v1::Left left;
  // Time left to repeat attempts to leave.
  std::optional<Deadline> patience;
  // Time since which work waits for the migration.
  std::optional<absl::Duration> waits_since;
  // An error if the other worker is no longer available.
  absl::Status given_up;
};

struct MigrationState {
  // The device does not migrate.
  bool stays = false;
  // Null while no migration is requested.
  std::unique_ptr<Migration> current;
  // The device ends the stream of the worker that it left and ignores its last
  // messages.
  bool going_over = false;
  // The device entered the other worker, and no stream there has resumed yet.
  bool gone_over = false;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_MIGRATION_H_
