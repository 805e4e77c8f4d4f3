// Combines the client's ends of Execution.Control and Execution.Bulk into one
// stream.
//
// The sending thread itself writes to each call. One message at a time is on
// its way, and the next one waits until this one has left. Bulk consists of
// bulk connections (Lane), each with one call. The connections are established
// at once, so that the first tensor need not wait for them. The calls start
// when the first tensor moves, in either direction. The chunks of an upload are
// distributed over the bulk connections, so that one chunk is prepared while
// others leave. Frames are raw: payload slices point at the caller's memory and
// keep its owner until gRPC is done with them, and received slices are passed
// on in place. The end of any call ends all calls.
//
// The stream ends if the peer stops reading for a while. Senders, the
// destructor and the end of the process wait for the peer only for a bounded
// time (bounded_call.h).
//
// Threads: one thread reads Control and closes the stream. A leader, which is a
// thread that waits for an answer, may read Control in its place for a short
// time. Each bulk connection has a thread that reads it. One thread checks that
// no write is stuck.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_
#define CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/net/bounded_call.h"
#include "common/transport/receiver_role.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/slice.h"

namespace djinn {

class GrpcWorkerStream : public ClientStream {
 public:
  // The limit on the time that a message may take to leave, and that a ping may
  // stay unanswered. Exceeding it breaks the stream.
  static constexpr absl::Duration kStuckWrite = absl::Seconds(20);

  // Returns an error that explains why a call ended without an answer from the
  // worker.
  using ExplainFunction = std::function<absl::Status(absl::Status)>;

  struct Options {
    // True if the channels are encrypted. Their connections then protect chunks
    // against corruption.
    bool encrypted = false;
    ExplainFunction explain = [](absl::Status status) { return status; };
    // Called when the stream ends for a reason that the worker did not give.
    // The stream's connections may then be unusable.
    std::function<void()> broke = [] {};
    absl::Duration stuck_write = kStuckWrite;
  };

  // `hello` opens each bulk connection. There must be at least one bulk
  // channel; each gets one bulk connection. The channels need not be connected
  // yet.
  GrpcWorkerStream(std::shared_ptr<grpc::Channel> control_channel,
                   std::vector<std::shared_ptr<grpc::Channel>> bulk_channels,
                   v1::BulkHello hello, Options options);
  ~GrpcWorkerStream() override;

  absl::string_view transport() const override { return "gRPC"; }
  void Start(ClientStreamReceiver* receiver) override;
  absl::Status Send(std::shared_ptr<const v1::ControlRequest> message) override;
  absl::Status SendAll(
      absl::Span<const std::shared_ptr<const v1::ControlRequest>> messages)
      override;
  bool SendsTogether() const override { return true; }
  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override;
  void Close(absl::Status status) override;
  // Leads on Control only: a message on Bulk does not end the wait.
  bool Lead(absl::FunctionRef<bool()> done, absl::Duration patience) override;
  bool LeadsBulk() const override { return false; }
  void Wake() override { role_.Wake(); }
  void Reclaim() override { role_.Reclaim(); }

 private:
  struct Lane {
    explicit Lane(std::shared_ptr<grpc::Channel> channel);
    BoundedCall call;
    std::thread thread;
  };

  void ReadControl();
  // Receives one message; called by the thread that reads Control. Returns
  // false if none came in time.
  bool Receive(absl::Duration patience);
  void RunLane(Lane* lane);
  absl::Status TakeFrame(absl::Span<const grpc::Slice> frame);
  // Makes the bulk channels connect, without waiting for it.
  void WarmBulk();
  // Starts the calls of the bulk connections unless they have started. Returns
  // false if the stream has ended.
  bool EnsureBulk();
  // Ends every call for a reason found on this side. The first reason counts.
  void Break(absl::Status status);
  // Cancels the bulk connections, and prevents that any starts later.
  void CancelLanes();
  // Breaks the stream when a write is stuck.
  void Watch();
  bool IsStuck();

  const v1::BulkHello hello_;
  const Options options_;
  ClientStreamReceiver* receiver_ = nullptr;
  BoundedCall control_;
  ReceiverRole role_;
  // Used only by the thread that reads Control. They say whether the worker has
  // answered, and whether the stream has ended, and hold the error in what this
  // thread received.
  bool answered_ = false;
  bool over_ = false;
  absl::Status invalid_;
  std::atomic<bool> resuming_{false};    // the hello resumes a session
  std::atomic<bool> end_writes_{false};  // closing cleanly

  std::atomic<size_t> next_lane_{0};
  Mutex bulk_mu_;
  std::vector<std::shared_ptr<grpc::Channel>> bulk_channels_
      ABSL_GUARDED_BY(bulk_mu_);  // of bulk connections to come
  bool bulk_over_ ABSL_GUARDED_BY(bulk_mu_) = false;
  // Constant once it is not empty.
  std::vector<std::unique_ptr<Lane>> lanes_;

  Mutex mu_;
  CondVar ended_changed_;
  // either side has begun to close
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // Control has ended
  std::thread control_reader_;
  std::thread watcher_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_
