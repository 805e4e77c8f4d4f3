// The worker's end of one client's connections over gRPC: presents the Control
// call and the Bulk calls of the same lease as a WorkerStream.
//
// Control messages that wait while one is written are sent together, if the
// client accepts that. Chunks to the client wait in one queue, and each Bulk
// call that is not writing takes the next one, so a slow connection holds up no
// other. Several threads at once hand incoming messages and chunks on.
//
// The stream object that the core owns shares the link with the reactors of the
// calls, which live until gRPC is done with them. OnClosed() comes when the
// calls are over and no callback of any of them runs any more.
//
// Closing sends the status on all calls after the writes in progress. A peer
// that does not take it in a few seconds is cut off. gRPC does not end a call
// whose write a frozen peer left half done in a Unix socket. OnClosed() comes
// even then, a moment later, and the link ignores what gRPC calls afterwards.
#ifndef GPU_WORKER_SERVICE_STREAM_LINK_H_
#define GPU_WORKER_SERVICE_STREAM_LINK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/net/call_metrics.h"
#include "common/transport/bulk_frame.h"
#include "common/transport/stream.h"
#include "gpu_worker/service/bulk_reactor.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace djinn::v1 {
class ControlResponse;
}  // namespace djinn::v1

namespace djinn::worker {

class StreamLink : public std::enable_shared_from_this<StreamLink> {
 public:
  using ControlReactor =
      grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // The client that a Hello named, once the core accepted it.
  struct Identity {
    std::string session_id;
    std::string token;
  };
  // Called once, when the core accepted the Hello.
  using AcceptedFunction =
      std::function<void(const std::shared_ptr<StreamLink>&)>;

  // `call` counts the Control call.
  static std::shared_ptr<StreamLink> Make(grpc::CallbackServerContext* context,
                                          CountedStream call,
                                          AcceptedFunction accepted);

  // Returns the reactor that the Control RPC's handler returns to gRPC.
  ControlReactor* control();
  // Makes the stream object for the core.
  std::unique_ptr<WorkerStream> MakeStream();

  // Returns the client's identity, which is set by the first message, before
  // `accepted` is called.
  Identity identity() const;

  static constexpr size_t kMaxBulkCalls = 8;

  // Attaches another Bulk call. Returns FailedPrecondition (LEASE_IN_USE) when
  // there are kMaxBulkCalls, or the status with which the link closed.
  absl::Status AttachBulk(BulkReactor* bulk);

 private:
  friend class BulkReactor;
  class Control;
  class LinkStream;

  explicit StreamLink(bool encrypted) : encrypted_(encrypted) {}

  // The stream's methods.
  void Start(WorkerStreamReceiver* receiver);
  bool Send(std::shared_ptr<const v1::ControlResponse> message);
  bool SendBulk(uint64_t transfer_id, uint64_t offset, SharedBytes payload);
  void Close(absl::Status status);
  void WaitDone();

  // Callbacks of the calls.
  void OnControlRead(bool ok);
  void OnControlWritten(bool ok);
  // `cancelled`: the connection broke, or the client cancelled the call.
  void OnControlDone(bool cancelled);
  void OnBulkFrame(const absl::StatusOr<BulkFrame>& frame, bool encrypted);
  // Reads the next frame, unless the call is ending.
  void ReadBulkOn(BulkReactor* bulk);
  void OnBulkLost();
  void OnBulkWritten(BulkReactor* bulk, bool ok);
  void OnBulkDone(BulkReactor* bulk);

  // Reads the next message, unless Control is ending.
  void ReadControlLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteControlLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends the status on the calls that have nothing more to write.
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the receiver, to be called without the lock and followed by
  // EndCall(). Null when no receiver is to be called.
  WorkerStreamReceiver* BeginCallLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndCall();
  bool OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportIfOver();
  void Report();
  void CutOff();
  void GiveUp();
  // Ends a client that asked for bytes and did not open Bulk.
  void CheckBulk();

  // True if Control's connection is encrypted. Bulk calls arrive at the same
  // server, so the same holds for them.
  const bool encrypted_;
  AcceptedFunction accepted_;

  mutable Mutex mu_;
  CondVar changed_;
  WorkerStreamReceiver* receiver_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::optional<absl::Status> close_status_ ABSL_GUARDED_BY(mu_);
  int calling_ ABSL_GUARDED_BY(mu_) = 0;  // threads in the receiver
  bool reported_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  Identity identity_ ABSL_GUARDED_BY(mu_);

  // Null after OnDone().
  Control* control_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool control_writing_ ABSL_GUARDED_BY(mu_) = false;
  bool control_finished_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool control_stalled_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ByteBuffer control_current_;
  std::deque<std::shared_ptr<const v1::ControlResponse>> control_queue_
      ABSL_GUARDED_BY(mu_);

  BulkCalls bulk_ ABSL_GUARDED_BY(mu_);
  // True once chunks waited for a first Bulk call; no_bulk_ then runs.
  bool bulk_awaited_ ABSL_GUARDED_BY(mu_) = false;

  // Cuts off a peer that does not take the closing status.
  grpc::Alarm cut_off_;
  // Ends the wait for calls that do not end even then.
  grpc::Alarm give_up_;
  grpc::Alarm no_bulk_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_STREAM_LINK_H_
