// The worker's end of one client's connections over gRPC: the Control call and
// the Bulk calls of the same lease, as they come, presented as a WorkerStream.
//
// Control messages that wait while one is written leave together, where the
// client takes them so. Chunks to the client wait in one queue; each Bulk call
// that is not writing takes the next, so that a slow connection holds up
// nobody. What the calls bring is handed on as it comes, by several threads at
// once. After a message whose sender waits for an answer the next is read when
// one leaves, or soon (read_pacer.h).
//
// A link is shared by the stream object that the core owns and by the reactors
// of the calls, which live until gRPC is done with them. OnClosed() comes when
// the calls are over and no callback of any of them runs any more.
//
// Closing sends the status on all calls after the writes in progress; a peer
// that does not take it in a few seconds is cut off. gRPC ends no call whose
// write a frozen peer left half done in a Unix socket. OnClosed() comes even
// then, a moment later; what gRPC calls afterwards is heard by nobody.
#ifndef GPU_WORKER_SERVICE_STREAM_LINK_H_
#define GPU_WORKER_SERVICE_STREAM_LINK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/transport/bulk_frame.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/service/read_pacer.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace djinn::worker {

class BulkReactor;

class StreamLink : public std::enable_shared_from_this<StreamLink>,
                   public ReadPacer::Reader {
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

  // `pacer` outlives the calls.
  static std::shared_ptr<StreamLink> Make(grpc::CallbackServerContext* context,
                                          ReadPacer* pacer,
                                          AcceptedFunction accepted);

  // What the Control RPC's handler returns.
  ControlReactor* control();
  // The core's end.
  std::unique_ptr<WorkerStream> MakeStream();

  // Set by the first message, before `accepted` is called.
  Identity identity() const;

  static constexpr size_t kMaxBulkCalls = 8;

  // Binds another Bulk call. FailedPrecondition (LEASE_IN_USE) when there are
  // kMaxBulkCalls, or the status with which the link closed.
  absl::Status AttachBulk(BulkReactor* bulk);

 private:
  friend class BulkReactor;
  class Control;
  class LinkStream;

  // A Bulk call until its OnDone().
  struct Lane {
    BulkReactor* call;
    // Being written.
    grpc::ByteBuffer frame;
    bool writing = false;
    bool finished = false;
  };

  StreamLink(bool encrypted, ReadPacer* pacer)
      : encrypted_(encrypted), pacer_(pacer) {}

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

  bool ReadOnIfDue(absl::Duration limit) override;

  // Reads the next message, unless Control is ending.
  void ReadControlLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteControlLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteBulkLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Lane* LaneOf(BulkReactor* bulk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends the status on the calls that have nothing more to write.
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The receiver, to be called without the lock, with EndCall() afterwards.
  // Null: nobody listens.
  WorkerStreamReceiver* BeginCallLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndCall();
  bool OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportIfOver();
  void Report();
  void CutOff();
  void GiveUp();
  // Ends a client that asked for bytes and did not open Bulk.
  void CheckBulk();

  // Control's connection; Bulk calls come to the same server.
  const bool encrypted_;
  ReadPacer* const pacer_;
  AcceptedFunction accepted_;

  mutable Mutex mu_;
  CondVar changed_;
  WorkerStreamReceiver* receiver_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::optional<absl::Status> close_status_ ABSL_GUARDED_BY(mu_);
  int calling_ ABSL_GUARDED_BY(mu_) = 0;  // callers of the receiver
  bool reported_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  Identity identity_ ABSL_GUARDED_BY(mu_);

  // Null after OnDone().
  Control* control_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool control_writing_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t control_writes_ ABSL_GUARDED_BY(mu_) = 0;  // begun
  // Sequences of the last read that came, and of the last that was answered.
  uint64_t awaited_read_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t answered_read_ ABSL_GUARDED_BY(mu_) = 0;
  // How many values in succession the client asked for when it had those
  // before.
  int waits_ ABSL_GUARDED_BY(mu_) = 0;
  // The next message is not being read, since then.
  std::optional<absl::Duration> put_off_ ABSL_GUARDED_BY(mu_);
  bool paced_ ABSL_GUARDED_BY(mu_) = false;  // the pacer watches this link
  bool control_finished_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool control_stalled_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ByteBuffer control_current_;
  std::deque<std::shared_ptr<const v1::ControlResponse>> control_queue_
      ABSL_GUARDED_BY(mu_);

  std::vector<std::unique_ptr<Lane>> lanes_ ABSL_GUARDED_BY(mu_);
  bool bulk_seen_ ABSL_GUARDED_BY(mu_) = false;
  bool bulk_awaited_ ABSL_GUARDED_BY(mu_) = false;
  bool bulk_stalled_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<grpc::ByteBuffer> bulk_queue_ ABSL_GUARDED_BY(mu_);

  // Cuts a peer off that does not take the closing status.
  grpc::Alarm cut_off_;
  // Ends the wait for calls that even so do not end.
  grpc::Alarm give_up_;
  grpc::Alarm no_bulk_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_STREAM_LINK_H_
