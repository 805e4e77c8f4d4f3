// The client's end of Execution.Control and Execution.Bulk as one stream.
//
// Control is written by the thread that sends, without a queue of our own:
// gRPC's flow control is the bounded buffer. Bulk consists of lanes, each a
// call on a connection of its own, opened when the first tensor moves either
// way; the chunks of an upload are dealt out over them. Frames are raw: payload
// slices point at the caller's memory and hold its owner until gRPC is done
// with them; received slices are handed on in place. The end of any of the
// calls ends all.
//
// Threads: one reads Control and closes; one opens and reads each lane; one
// watches that no write is stuck.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_
#define CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/mutex.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"

namespace djinn {

class GrpcWorkerStream : public ClientStream {
 public:
  // A write that gRPC holds for so long breaks the stream.
  static constexpr absl::Duration kStuckWrite = absl::Seconds(60);

  // Says in words why a call ended that the worker never answered.
  using ExplainFunction = std::function<absl::Status(absl::Status)>;

  struct Options {
    // Whether the channels are: their connections then protect chunks.
    bool encrypted = false;
    ExplainFunction explain = [](absl::Status status) { return status; };
    absl::Duration stuck_write = kStuckWrite;
  };

  // Channels are not connected yet. `hello` opens each lane; there is one per
  // bulk channel, of which there is one at least.
  GrpcWorkerStream(std::shared_ptr<grpc::Channel> control_channel,
                   std::vector<std::shared_ptr<grpc::Channel>> bulk_channels,
                   v1::BulkHello hello, Options options);
  ~GrpcWorkerStream() override;

  void Start(ClientStreamReceiver* receiver) override;
  absl::Status Send(std::shared_ptr<const v1::ControlRequest> message) override;
  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override;
  void Close(absl::Status status) override;

 private:
  using BulkStream =
      grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  // When a write began; 0 while there is none.
  using WriteStart = std::atomic<int64_t>;

  struct Lane {
    std::shared_ptr<grpc::Channel> channel;
    grpc::ClientContext context;
    Mutex mu;
    CondVar opened;
    // Set once by the lane's thread, which alone reads it.
    std::unique_ptr<BulkStream> stream ABSL_GUARDED_BY(mu);
    bool over ABSL_GUARDED_BY(mu) = false;
    WriteStart writing{0};
    std::thread thread;
  };

  void ReadControl();
  void RunLane(Lane* lane);
  absl::Status ReadLane(BulkStream* stream);
  absl::Status TakeFrame(grpc::ByteBuffer* frame);
  // Starts the lanes if they are not, and unless the stream is over.
  void EnsureBulk();
  // Tells the worker that nothing follows, once nobody writes.
  void EndControlWrites();
  // Ends every call for a reason found on this side; the first counts.
  void Break(absl::Status status);
  void CancelLanes();
  // Breaks the stream when a write is stuck.
  void Watch();
  bool IsStuck(const WriteStart& writing) const;

  const std::shared_ptr<grpc::Channel> control_channel_;
  const v1::BulkHello hello_;
  const Options options_;
  const std::unique_ptr<v1::Execution::Stub> stub_;
  ClientStreamReceiver* receiver_ = nullptr;

  // Contexts may be cancelled by any thread; streams are made after them.
  grpc::ClientContext control_context_;
  std::atomic<bool> resuming_{false};  // the hello said so

  // Set by Start(); written under write_mu_, read by the reading thread.
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::ControlRequest, v1::ControlResponse>>
      control_;
  Mutex write_mu_;
  bool writes_done_ ABSL_GUARDED_BY(write_mu_) = false;
  std::atomic<bool> end_writes_{false};
  WriteStart control_writing_{0};

  // Their number does not change.
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<size_t> next_lane_{0};
  Mutex bulk_mu_;
  bool bulk_started_ ABSL_GUARDED_BY(bulk_mu_) = false;
  bool bulk_over_ ABSL_GUARDED_BY(bulk_mu_) = false;

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
