// The two ends of a connection between a client session and a worker: an
// ordered message stream plus lanes for tensor bytes. The client's end sends
// v1::ControlRequest and receives v1::ControlResponse; the worker's end the
// reverse.
//
// Implementations: gRPC (client_lib/transport, gpu_worker/service) and
// in-process (common/transport/in_process.h). Logic on both sides knows only
// these interfaces.
//
// Life: the creator calls Start() once; then Send() and SendBulk() until the
// stream closes. OnClosed() is the last callback, comes exactly once per
// started stream, and also follows a local Close(). Destroying a stream closes
// it and returns only when no callback runs; never destroy it from a callback.
//
// The client's end blocks a caller while its bounded buffer is full, so that
// the program's threads feel the worker's pace. The worker's end never blocks:
// one thread there serves many clients, and whoever sends waits for room.
//
// Messages are passed by shared_ptr so that a sender can keep what it may have
// to send again without copying it.
#ifndef COMMON_TRANSPORT_STREAM_H_
#define COMMON_TRANSPORT_STREAM_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/transport/shared_bytes.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

// Callbacks. They must not block on the peer.
template <typename In>
class StreamReceiver {
 public:
  virtual ~StreamReceiver() = default;
  // One at a time.
  virtual void OnMessage(In message) = 0;
  // A chunk's payload, in pieces that live only during the call. A stream with
  // several lanes delivers chunks in any order and several at the same time,
  // each of them once; they run at the same time as OnMessage().
  virtual void OnBulk(uint64_t transfer_id, uint64_t offset,
                      absl::Span<const absl::string_view> pieces) = 0;
  // OK when either side closed cleanly. An error with a reason
  // (common/base/error.h) comes from a side that ended the stream, one without
  // from what lies between.
  virtual void OnClosed(absl::Status status) = 0;
};

// Who receives. A thread that waits for a message of one stream alone may
// receive it by itself, which saves the change from the stream's thread to it.
// Streams that cannot be received so say false.
class Attendable {
 public:
  virtual ~Attendable() = default;

  // Returns true when `done`, which is asked without locks held here, may be
  // true, or about `patience` has passed; finite. Meanwhile calls the
  // receiver's callbacks in this thread, or waits for the thread that does.
  // False: the caller waits as ever, for two others attend already, or the
  // stream ends.
  //
  // Where threads attended lately, others may hear of messages some
  // milliseconds late, unless Recall() was called.
  virtual bool Attend(absl::FunctionRef<bool()> done, absl::Duration patience) {
    return false;
  }
  // Whether who attends hears of chunks, too.
  virtual bool AttendsBulk() const { return true; }
  // What attendants wait for may have come another way: they ask `done`.
  virtual void Nudge() {}
  // Has the stream's own thread receive, now.
  virtual void Recall() {}
};

using ClientStreamReceiver = StreamReceiver<v1::ControlResponse>;

class WorkerStreamReceiver : public StreamReceiver<v1::ControlRequest> {
 public:
  // A buffer that was full has room again. Never called from inside Send().
  virtual void OnRoom() {}
  virtual void OnBulkRoom() {}
};

class ClientStream : public Attendable {
 public:
  // What carries it, for people: "gRPC", "shared memory".
  virtual absl::string_view transport() const = 0;
  // Whether a round trip takes less than the copies of a tensor that a message
  // makes, and chunks do not.
  virtual bool is_near() const { return false; }

  // `receiver` must outlive the stream.
  virtual void Start(ClientStreamReceiver* receiver) = 0;

  // Queues a message; blocks while the transport's bounded buffer is full. The
  // closing status once the stream is closed. Thread-safe; the caller orders.
  virtual absl::Status Send(
      std::shared_ptr<const v1::ControlRequest> message) = 0;

  // The same with several, in their order, of a few kilobytes in all.
  virtual absl::Status SendAll(
      absl::Span<const std::shared_ptr<const v1::ControlRequest>> messages) {
    for (const auto& message : messages) {
      absl::Status sent = Send(message);
      if (!sent.ok()) return sent;
    }
    return absl::OkStatus();
  }
  // Whether several leave for less than one by one: worth waiting for what is
  // about to follow.
  virtual bool SendsTogether() const { return false; }

  // Queues one chunk, likewise. The bytes may be read until their owner is let
  // go of. If they change meanwhile, the peer has some of either.
  virtual absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                                SharedBytes payload) = 0;

  // Ends the stream: the peer sees `status` (OK: a clean end, after everything
  // queued). Idempotent; the first status counts. Does not wait.
  virtual void Close(absl::Status status) = 0;
};

class WorkerStream : public Attendable {
 public:
  // `receiver` must outlive the stream.
  virtual void Start(WorkerStreamReceiver* receiver) = 0;

  // Takes a message without blocking; a closed stream drops it. False: the
  // buffer is full now, and a caller that may have more to say waits for
  // OnRoom(). Thread-safe; the caller orders.
  virtual bool Send(std::shared_ptr<const v1::ControlResponse> message) = 0;

  // Takes one chunk, likewise: OnBulkRoom(). The bytes are not copied before
  // they are sent.
  virtual bool SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) = 0;

  // As ClientStream::Close().
  virtual void Close(absl::Status status) = 0;
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_STREAM_H_
