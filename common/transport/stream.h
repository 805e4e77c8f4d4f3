// One end of a connection between a client session and a worker: an ordered
// message stream plus a lane for tensor bytes. The client's end sends
// v1::ControlRequest and receives v1::ControlResponse; the worker's end the
// reverse.
//
// Implementations: gRPC (client_lib/transport, gpu_worker/service) and
// in-process (common/transport/in_process.h). Logic on both sides knows only
// this interface.
//
// Life: the creator calls Start() once; then Send() and SendBulk() until the
// stream closes. OnClosed() is the last callback, comes exactly once per
// started stream, and also follows a local Close(). Destroying a stream closes
// it and returns only when no callback runs; never destroy it from a callback.
#ifndef COMMON_TRANSPORT_STREAM_H_
#define COMMON_TRANSPORT_STREAM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

// Bytes kept alive by whoever owns them, sent without a copy.
struct SharedBytes {
  absl::string_view bytes;
  std::shared_ptr<const void> owner;
};

// Callbacks. Calls of OnMessage are serialised among themselves, as are those
// of OnBulk; the two may run at the same time. They must not block on the peer.
template <typename In>
class StreamReceiver {
 public:
  virtual ~StreamReceiver() = default;
  virtual void OnMessage(In message) = 0;
  // A chunk's payload, in pieces that live only during the call.
  virtual void OnBulk(uint64_t transfer_id, uint64_t offset,
                      absl::Span<const absl::string_view> pieces) = 0;
  // OK when either side closed cleanly.
  virtual void OnClosed(absl::Status status) = 0;
};

template <typename Out, typename In>
class Stream {
 public:
  virtual ~Stream() = default;

  // `receiver` must outlive the stream.
  virtual void Start(StreamReceiver<In>* receiver) = 0;

  // Queues a message; blocks while the transport's bounded buffer is full. The
  // closing status once the stream is closed. Thread-safe; the caller orders.
  virtual absl::Status Send(Out message) = 0;

  // Queues one chunk, likewise. The bytes are not copied before they are sent.
  virtual absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                                SharedBytes payload) = 0;

  // Ends the stream: the peer sees `status` (OK: a clean end, after everything
  // queued). Idempotent; the first status counts. Does not wait.
  virtual void Close(absl::Status status) = 0;
};

using ClientStream = Stream<v1::ControlRequest, v1::ControlResponse>;
using ClientStreamReceiver = StreamReceiver<v1::ControlResponse>;
using WorkerStream = Stream<v1::ControlResponse, v1::ControlRequest>;
using WorkerStreamReceiver = StreamReceiver<v1::ControlRequest>;

// Payload of one bulk chunk, every transport.
inline constexpr size_t kBulkChunkBytes = size_t{1} << 20;

}  // namespace djinn

#endif  // COMMON_TRANSPORT_STREAM_H_
