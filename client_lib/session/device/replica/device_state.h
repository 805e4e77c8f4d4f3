// Defines the state of a device's connection and of its shutdown.
//
// The connection's lock guards all of it.
#ifndef CLIENT_LIB_SESSION_DEVICE_REPLICA_DEVICE_STATE_H_
#define CLIENT_LIB_SESSION_DEVICE_REPLICA_DEVICE_STATE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/base/error.h"
#include "common/transport/stream.h"

namespace djinn {

// Describes the current stream to the worker (answer_receiver.h).
struct StreamState {
  // a round trip to the last stream's peer is cheap (is_near())
  bool near = false;
  // The stream ended by itself, and another one may replace it.
  bool broken = false;
  absl::Status break_cause;
  bool hello_received = false;  // on this stream
  bool closed = false;          // the stream ended

  void Begin(const ClientStream& next) {
    closed = broken = hello_received = false;
    near = next.is_near();
  }
};

// The progress of a device towards its end, which a failure or its session
// causes.
struct DeviceEnd {
  // The failure that the recorder gets before other threads can see it.
  absl::Status failing;
  absl::Status failure;
  bool dropped = false;    // work unfinished at the failure was dropped
  bool lost_work = false;  // the failure lost work
  bool closing = false;
  bool drained = false;  // the sender has nothing left
  bool cancelling = false;
  bool cancel_sent = false;
  bool cancelled = false;  // the worker confirmed it
  bool stopped = false;

  // Returns whether calls are taken.
  bool usable() const { return failure.ok() && !closing && !stopped; }
  // Returns whether the device still needs its worker.
  bool wanted() const { return failure.ok() && !stopped && !cancelling; }
  // Returns the reason why no call is taken.
  absl::Status Reason() const { return failure.ok() ? Closed() : failure; }
  static absl::Status Closed() {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_CLOSED",
                     "the session is closed; its tensors cannot be used");
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_REPLICA_DEVICE_STATE_H_
