// The client's end of Execution.Control and Execution.Bulk as one stream.
//
// Control is written by the thread that sends, without a queue of our own:
// gRPC's flow control is the bounded buffer. Bulk has a connection of its own,
// opened when the first tensor moves either way, and raw frames: payload slices
// point at the caller's memory and hold its owner until gRPC is done with them;
// received slices are handed on in place. Either stream's end ends both.
//
// Threads: one reads Control and closes; one reads Bulk while there is one.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_
#define CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>

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
  // Channels are not connected yet. `hello` opens Bulk.
  GrpcWorkerStream(std::shared_ptr<grpc::Channel> control_channel,
                   std::shared_ptr<grpc::Channel> bulk_channel,
                   v1::BulkHello hello);
  ~GrpcWorkerStream() override;

  void Start(ClientStreamReceiver* receiver) override;
  absl::Status Send(std::shared_ptr<const v1::ControlRequest> message) override;
  absl::Status SendBulk(uint64_t transfer_id, uint64_t offset,
                        SharedBytes payload) override;
  void Close(absl::Status status) override;

 private:
  using BulkStream =
      grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  void ReadControl();
  void ReadBulk();
  absl::Status TakeFrame(grpc::ByteBuffer* frame);
  // Opens Bulk if it is not.
  absl::Status EnsureBulk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(bulk_mu_);
  // Tells the worker that nothing follows, once nobody writes.
  void EndControlWrites();
  // Ends both streams for a reason found on this side; the first counts.
  void Break(absl::Status status);

  const std::shared_ptr<grpc::Channel> control_channel_;
  const std::shared_ptr<grpc::Channel> bulk_channel_;
  const v1::BulkHello hello_;
  const std::unique_ptr<v1::Execution::Stub> stub_;
  ClientStreamReceiver* receiver_ = nullptr;

  // Contexts may be cancelled by any thread; streams are made after them.
  grpc::ClientContext control_context_;
  grpc::ClientContext bulk_context_;

  // Set by Start(); written under write_mu_, read by the reading thread.
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::ControlRequest, v1::ControlResponse>>
      control_;
  Mutex write_mu_;
  bool writes_done_ ABSL_GUARDED_BY(write_mu_) = false;
  std::atomic<bool> end_writes_{false};

  Mutex bulk_mu_;
  std::unique_ptr<BulkStream> bulk_ ABSL_GUARDED_BY(bulk_mu_);
  bool bulk_over_ ABSL_GUARDED_BY(bulk_mu_) = false;
  std::thread bulk_reader_;

  Mutex mu_;
  CondVar ended_changed_;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // either side has begun
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // Control is over
  std::thread control_reader_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_WORKER_STREAM_H_
