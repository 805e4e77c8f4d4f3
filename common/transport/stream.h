// Defines the two ends of a connection between a client session and a worker:
// an ordered message stream and bulk connections for tensor bytes. The client's
// end sends v1::ControlRequest and receives v1::ControlResponse; the worker's
// end does the reverse.
//
// The implementations are gRPC (client_lib/transport, gpu_worker/service),
// shared memory (common/transport/shared_memory) and in-process
// (common/transport/in_process.h). Logic on both sides knows only these
// interfaces.
//
// The creator calls Start() once, and then Send() and SendBulk() until the
// stream closes. OnClosed() is the last callback. It comes exactly once per
// started stream, and also after a local Close(). The destructor closes the
// stream and returns only when no callback runs; never destroy a stream in a
// callback.
//
// The client's end blocks a caller while its bounded buffer is full, so that
// the program's threads slow down to the worker's pace. The worker's end never
// blocks, because one thread there serves many clients; its senders wait for
// OnRoom().
//
// Messages are passed by shared_ptr, so that a sender can keep those that it
// may have to send again without a copy.
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

namespace djinn::v1 {
class ControlRequest;
class ControlResponse;
}  // namespace djinn::v1

namespace djinn {

// The callbacks of a stream. They must not wait for the peer.
template <typename In>
class StreamReceiver {
 public:
  virtual ~StreamReceiver() = default;
  // Delivers a message. One call runs at a time.
  virtual void OnMessage(In message) = 0;
  // Delivers a chunk's payload, in pieces that are valid only during the call.
  // A stream with several bulk connections delivers chunks in any order, and
  // several at the same time, each once. The calls may run at the same time as
  // OnMessage().
  virtual void OnBulk(uint64_t transfer_id, uint64_t offset,
                      absl::Span<const absl::string_view> pieces) = 0;
  // The stream has ended. `status` is OK when either side closed it cleanly. An
  // error with a reason (common/base/error.h) comes from the side that ended
  // the stream. An error without one comes from the network between them.
  virtual void OnClosed(absl::Status status) = 0;
};

// Lets a thread that waits for a message of this stream alone receive it by
// itself, which saves a switch from the stream's thread. Streams that do not
// support this return false.
class LeadableStream {
 public:
  virtual ~LeadableStream() = default;

  // Calls the receiver's callbacks in this thread, or waits for the thread that
  // does so. Returns true when `done`, which is called without the stream's
  // locks, may be true, or about `patience` has passed; `patience` must be
  // finite. Returns false when two other threads lead already or the stream
  // ends; the caller then waits in another way.
  //
  // After a thread led, other threads may receive messages some
  // milliseconds late, unless Reclaim() is called.
  virtual bool Lead(absl::FunctionRef<bool()> done, absl::Duration patience) {
    return false;
  }
  // Returns whether a leading thread also receives chunks.
  virtual bool LeadsBulk() const { return true; }
  // Makes leading threads call `done`, because what they wait for may have
  // come another way.
  virtual void Wake() {}
  // Makes the stream's own thread receive at once.
  virtual void Reclaim() {}
};

using ClientStreamReceiver = StreamReceiver<v1::ControlResponse>;

class WorkerStreamReceiver : public StreamReceiver<v1::ControlRequest> {
 public:
  // Called when a buffer that was full has room again. Never called within
  // Send().
  virtual void OnRoom() {}
  virtual void OnBulkRoom() {}
};

class ClientStream : public LeadableStream {
 public:
  // Returns the name of the transport, human-readable: "gRPC", "shared memory".
  virtual absl::string_view transport() const = 0;
  // Returns whether a round trip takes less time than the additional copies of
  // a tensor that is sent inside a message instead of in chunks.
  virtual bool is_near() const { return false; }

  // `receiver` must outlive the stream.
  virtual void Start(ClientStreamReceiver* receiver) = 0;

  // Queues a message. Blocks while the transport's bounded buffer is full.
  // Returns the closing status once the stream is closed. Thread-safe; the
  // caller provides the order.
  virtual absl::Status Send(
      std::shared_ptr<const v1::ControlRequest> message) = 0;

  // Queues several messages in order. They have a few kilobytes in total.
  virtual absl::Status SendAll(
      absl::Span<const std::shared_ptr<const v1::ControlRequest>> messages) {
    for (const auto& message : messages) {
      absl::Status sent = Send(message);
      if (!sent.ok()) return sent;
    }
    return absl::OkStatus();
  }
  // Returns whether several messages cost less together than one by one, so
  // that it pays to wait for the next ones.
  virtual bool SendsTogether() const { return false; }

  // Queues one chunk, under the rules of Send(). The stream may read the bytes
  // until it releases their owner. If they change before that, the peer may
  // receive a mixture of old and new bytes.
  virtual absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                                SharedBytes payload) = 0;

  // Ends the stream. The peer receives `status`; OK is a clean end after
  // everything that is queued. Later calls have no effect. Does not wait.
  virtual void Close(absl::Status status) = 0;
};

class WorkerStream : public LeadableStream {
 public:
  // `receiver` must outlive the stream.
  virtual void Start(WorkerStreamReceiver* receiver) = 0;

  // Queues a message without blocking; a closed stream drops it. Returns false
  // when the buffer is full now; a caller that has more to send waits for
  // OnRoom(). Thread-safe; the caller provides the order.
  virtual bool Send(std::shared_ptr<const v1::ControlResponse> message) = 0;

  // Queues one chunk under the rules of Send(), with OnBulkRoom(). The bytes
  // are not copied before they are sent.
  virtual bool SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) = 0;

  // See ClientStream::Close().
  virtual void Close(absl::Status status) = 0;
};

}  // namespace djinn

#endif  // COMMON_TRANSPORT_STREAM_H_
