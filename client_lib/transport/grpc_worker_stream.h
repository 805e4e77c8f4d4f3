// The client's end of Execution.Control and Execution.Bulk as one stream.
//
// Every call is written by the thread that sends: one message at a time is on
// its way, and the next waits until it has left. Bulk consists of lanes, each a
// call on a connection of its own. Connections are made at once, calls when the
// first tensor moves either way, which then need not wait for connections; the
// chunks of an upload are dealt out over the lanes, so that one is prepared
// while others leave. Frames are raw: payload slices point at the caller's
// memory and hold its owner until gRPC is done with them; received slices are
// handed on in place. The end of any of the calls ends all.
//
// A peer that takes nothing ends the stream after a while: whoever sends, the
// destructor and the process' end never wait for it (bounded_call.h).
//
// Threads: one reads Control and closes, and lends the reading to who attends,
// for a short wait; one reads each lane; one watches that no write is stuck.
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
  // A message that does not leave for so long breaks the stream; a ping may
  // stay unanswered for as long.
  static constexpr absl::Duration kStuckWrite = absl::Seconds(20);

  // Says in words why a call ended that the worker never answered.
  using ExplainFunction = std::function<absl::Status(absl::Status)>;

  struct Options {
    // Whether the channels are: their connections then protect chunks.
    bool encrypted = false;
    ExplainFunction explain = [](absl::Status status) { return status; };
    // Called when the stream ends by something else than the worker's word:
    // its connections may be of no use any more.
    std::function<void()> broke = [] {};
    absl::Duration stuck_write = kStuckWrite;
  };

  // Channels need not be connected yet. `hello` opens each lane; there is one
  // per bulk channel, of which there is one at least.
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
  // Control alone: what comes on Bulk ends no attendance.
  bool Attend(absl::FunctionRef<bool()> done, absl::Duration patience) override;
  bool AttendsBulk() const override { return false; }
  void Nudge() override { role_.Nudge(); }
  void Recall() override { role_.Recall(); }

 private:
  struct Lane {
    explicit Lane(std::shared_ptr<grpc::Channel> channel);
    BoundedCall call;
    std::thread thread;
  };

  void ReadControl();
  // Whoever has the role. False: nothing came in time.
  bool Receive(absl::Duration patience);
  void RunLane(Lane* lane);
  absl::Status TakeFrame(absl::Span<const grpc::Slice> frame);
  // Has the lanes' channels connect, without waiting for it.
  void WarmBulk();
  // Opens the lanes if they are not; false when the stream is over.
  bool EnsureBulk();
  // Ends every call for a reason found on this side; the first counts.
  void Break(absl::Status status);
  // Cancels the lanes, and sees to it that none are opened any more.
  void CancelLanes();
  // Breaks the stream when a write is stuck.
  void Watch();
  bool IsStuck();

  const v1::BulkHello hello_;
  const Options options_;
  ClientStreamReceiver* receiver_ = nullptr;
  BoundedCall control_;
  ReceiverRole role_;
  // Of whoever has the role: the worker has said something; nothing follows,
  // and what was wrong with what came.
  bool answered_ = false;
  bool over_ = false;
  absl::Status invalid_;
  std::atomic<bool> resuming_{false};    // the hello said so
  std::atomic<bool> end_writes_{false};  // closing cleanly

  std::atomic<size_t> next_lane_{0};
  Mutex bulk_mu_;
  std::vector<std::shared_ptr<grpc::Channel>> bulk_channels_
      ABSL_GUARDED_BY(bulk_mu_);  // of lanes to come
  bool bulk_over_ ABSL_GUARDED_BY(bulk_mu_) = false;
  // Complete once there are any.
  std::vector<std::unique_ptr<Lane>> lanes_;

  Mutex mu_;
  CondVar ended_changed_;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // either side has begun
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // Control is over
  std::thread control_reader_;
  std::thread watcher_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_
