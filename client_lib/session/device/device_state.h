// The state of a device's connection, and of its way to an end.
//
// The device's lock guards all of it.
#ifndef CLIENT_LIB_SESSION_DEVICE_DEVICE_STATE_H_
#define CLIENT_LIB_SESSION_DEVICE_DEVICE_STATE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/base/error.h"
#include "common/transport/stream.h"

namespace djinn {

// The stream to the worker, one after another.
struct StreamState {
  // Replaced and destroyed by the device's own thread, or at its end.
  std::unique_ptr<ClientStream> stream;
  // The worker has answered on this stream, which has not ended.
  bool connected = false;
  uint64_t connections = 0;  // that were made so far
  bool near = false;         // the last stream's peer is
  // The stream ended by itself: another may go on.
  bool broken = false;
  absl::Status break_cause;
  bool hello_received = false;  // on this stream
  bool closed = false;          // the stream ended
  // Threads that use the stream without being the sender.
  int users = 0;
  // Threads that receive by themselves while they wait, or are about to, and
  // those that cannot.
  int attending = 0;
  int plain_waiters = 0;

  void Begin(std::unique_ptr<ClientStream> next) {
    closed = broken = hello_received = false;
    stream = std::move(next);
    near = stream->is_near();
  }
  void Break(absl::Status cause) {
    connected = false;
    broken = true;
    break_cause = std::move(cause);
  }
};

// How far a device is on its way to its end, by a failure or by its session's.
struct DeviceEnd {
  // The failure that the recorder is told of, before it is seen.
  absl::Status failing;
  absl::Status failure;
  bool dropped = false;    // what was unfinished at the failure
  bool lost_work = false;  // by the failure
  bool closing = false;
  bool drained = false;  // the sender has nothing left
  bool cancelling = false;
  bool cancel_sent = false;
  bool cancelled = false;  // the worker said so
  bool stopped = false;

  // Calls are taken.
  bool usable() const { return failure.ok() && !closing && !stopped; }
  // The worker is still of use.
  bool wanted() const { return failure.ok() && !stopped && !cancelling; }
  // Why no call is taken.
  absl::Status Reason() const { return failure.ok() ? Closed() : failure; }
  static absl::Status Closed() {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_CLOSED",
                     "the session is closed; its tensors cannot be used");
  }
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_DEVICE_DEVICE_STATE_H_
