// The server's end of a bidirectional stream. Reads one message at a time, and
// whenever it is woken sends the messages that Next() returns.
//
// Parses messages itself instead of leaving that to gRPC, so that a malformed
// message ends the stream with a status and a line in the log.
//
// The reactor keeps itself alive from Begin() until gRPC is done with it.
// Others may hold it longer as a Waker, which then does nothing. It has one
// read, one write and no queue, so an idle stream takes no more memory than
// this object.
#ifndef COORDINATOR_RPC_STREAM_REACTOR_H_
#define COORDINATOR_RPC_STREAM_REACTOR_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/call_metrics.h"
#include "common/net/grpc_status.h"
#include "common/net/raw_message.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/waker.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace djinn::coordinator {

// How long a stream waits for its first message before it ends. Until then
// nothing else watches it.
inline constexpr std::chrono::seconds kFirstMessageTimeout{10};

using RawStream = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

template <typename Request, typename Response>
class StreamReactor : public RawStream, public Waker {
 public:
  // `context` is the context of the call, which `call` counts.
  StreamReactor(grpc::CallbackServerContext* context, CountedStream call)
      : context_(context), call_(std::move(call)) {}

  // Starts the stream and returns the reactor, which the RPC's handler returns
  // in turn. Call it once.
  static StreamReactor* Begin(std::shared_ptr<StreamReactor> reactor) {
    StreamReactor* const raw = reactor.get();
    // The alarm keeps its function, so the function must not own the reactor.
    raw->first_message_alarm_.Set(
        std::chrono::system_clock::now() + kFirstMessageTimeout,
        [weak = std::weak_ptr<StreamReactor>(reactor)](bool expired) {
          const std::shared_ptr<StreamReactor> self = weak.lock();
          if (expired && self != nullptr) self->OnSilence();
        });
    raw->self_ = std::move(reactor);
    raw->ReadOn();
    return raw;
  }

  void Wake() final { Pump(); }

 protected:
  // Tells how the stream goes on after a message: kReadOn reads the next one at
  // once, kWaitForReadOn waits until ReadOn() is called.
  enum class Then { kReadOn, kWaitForReadOn };

  // Handles a message: parses it and calls OnRequest(), unless overridden.
  // Calls do not overlap. A status ends the stream.
  virtual absl::StatusOr<Then> OnBytes(grpc::ByteBuffer* bytes) {
    Request request;
    DJINN_RETURN_IF_ERROR(ParseRawMessage(bytes, &request));
    return OnRequest(&request);
  }
  virtual absl::StatusOr<Then> OnRequest(Request* request) = 0;
  // Returns the next message to send, if there is one. A status ends the
  // stream. May take locks after mu_; Wake() and End() must not be called with
  // those locks held.
  virtual absl::StatusOr<std::optional<Response>> Next()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;
  // Called once, when the stream is over.
  virtual void OnClosed() = 0;
  // Returns the peer's name for the log. Called by the thread that reads.
  virtual std::string PeerName() const = 0;

  // Reads the next message, unless the stream has ended.
  void ReadOn() {
    MutexLock lock(&mu_);
    if (!ending_) StartRead(&request_);
  }

  // Ends the stream once the write in progress is done. Only the first call
  // counts.
  void End(absl::Status status) {
    MutexLock lock(&mu_);
    EndLocked(std::move(status));
  }

  // Sends the next message, unless a write is in progress: its end sends the
  // next one.
  void Pump() {
    MutexLock lock(&mu_);
    if (ending_ || writing_) return;
    absl::StatusOr<std::optional<Response>> next = Next();
    if (!next.ok()) {
      EndLocked(std::move(next).status());
    } else if (next->has_value()) {
      response_ = ToRawMessage(**next);
      call_.AddSent(response_.Length());
      writing_ = true;
      StartWrite(&response_);
    }
  }

  Mutex mu_;

 private:
  void OnReadDone(bool ok) final {
    if (!ok) {
      // The peer has ended its side, or is gone.
      End(absl::OkStatus());
      return;
    }
    {
      MutexLock lock(&mu_);
      heard_ = true;
      call_.AddReceived(request_.Length());
    }
    const absl::StatusOr<Then> then = OnBytes(&request_);
    if (!then.ok()) {
      log::Warning("stream ended for its peer's message",
                   {{"name", PeerName()},
                    {"peer", context_->peer()},
                    {"error", then.status()}});
      End(then.status());
    } else if (*then == Then::kReadOn) {
      ReadOn();
    }
  }

  void OnWriteDone(bool ok) final {
    {
      MutexLock lock(&mu_);
      writing_ = false;
      response_.Clear();
      if (ending_) {
        Finish(call_.End(ToGrpcStatus(end_status_)));
        return;
      }
      if (!ok) {
        EndLocked(absl::OkStatus());
        return;
      }
    }
    Pump();
  }

  void OnCancel() final { End(absl::CancelledError("cancelled")); }

  void OnDone() final {
    OnClosed();
    self_.reset();  // May delete this.
  }

  void OnSilence() {
    MutexLock lock(&mu_);
    if (heard_ || ending_) return;
    log::Warning("stream ended: the first message never came",
                 {{"peer", context_->peer()}});
    EndLocked(Violation("the first message never came"));
  }

  void EndLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (ending_) return;
    ending_ = true;
    end_status_ = std::move(status);
    if (!writing_) Finish(call_.End(ToGrpcStatus(end_status_)));
  }

  grpc::CallbackServerContext* const context_;
  CountedStream call_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  grpc::Alarm first_message_alarm_;
  bool heard_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<StreamReactor> self_;
};

// Ends a stream that is refused before it begins.
class RefusedStream : public RawStream {
 public:
  explicit RefusedStream(const absl::Status& status) {
    Finish(ToGrpcStatus(status));
  }
  // Counts the call, too.
  RefusedStream(const absl::Status& status, CountedStream call) {
    Finish(call.End(ToGrpcStatus(status)));
  }
  void OnDone() final { delete this; }
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_RPC_STREAM_REACTOR_H_
