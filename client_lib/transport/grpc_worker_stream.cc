#include "client_lib/transport/grpc_worker_stream.h"

#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/net/grpc_status.h"
#include "common/status_macros.h"
#include "common/transport/bulk_frame.h"
#include "grpcpp/impl/codegen/rpc_method.h"

namespace djinn {
namespace {

// How long a worker may take to end a stream that was closed cleanly.
constexpr absl::Duration kCleanEndTimeout = absl::Seconds(2);

constexpr char kBulkMethod[] = "/djinn.v1.Execution/Bulk";

absl::Status StreamClosed() {
  return absl::CancelledError("the stream is closed");
}

grpc::Slice SliceOf(const SharedBytes& payload) {
  using Owner = std::shared_ptr<const void>;
  return grpc::Slice(
      const_cast<char*>(payload.bytes.data()), payload.bytes.size(),
      [](void* owner) { delete static_cast<Owner*>(owner); },
      new Owner(payload.owner));
}

}  // namespace

GrpcWorkerStream::GrpcWorkerStream(
    std::shared_ptr<grpc::Channel> control_channel,
    std::shared_ptr<grpc::Channel> bulk_channel, v1::BulkHello hello)
    : control_channel_(std::move(control_channel)),
      bulk_channel_(std::move(bulk_channel)),
      hello_(std::move(hello)),
      stub_(v1::Execution::NewStub(control_channel_)) {
  // Headers travel with the first message, so that opening does not wait.
  control_context_.set_initial_metadata_corked(true);
  bulk_context_.set_initial_metadata_corked(true);
}

GrpcWorkerStream::~GrpcWorkerStream() {
  Close(absl::OkStatus());
  if (!control_reader_.joinable()) return;
  {
    MutexLock lock(&mu_);
    if (!ended_) ended_changed_.WaitWithTimeout(&mu_, kCleanEndTimeout);
  }
  control_context_.TryCancel();
  control_reader_.join();
}

void GrpcWorkerStream::Start(ClientStreamReceiver* receiver) {
  receiver_ = receiver;
  {
    MutexLock lock(&write_mu_);
    control_ = stub_->Control(&control_context_);
  }
  control_reader_ = std::thread([this] { ReadControl(); });
}

absl::Status GrpcWorkerStream::Send(
    std::shared_ptr<const v1::ControlRequest> message) {
  const v1::Ordered& ordered = message->ordered();
  if (ordered.has_read() && ordered.read().transfer_id() != 0) {
    // The value will come on Bulk: the worker must know where that is.
    MutexLock lock(&bulk_mu_);
    DJINN_RETURN_IF_ERROR(EnsureBulk());
  }
  bool sent = false;
  {
    MutexLock lock(&write_mu_);
    if (control_ != nullptr && !writes_done_ && !end_writes_) {
      sent = control_->Write(*message);
    }
  }
  if (end_writes_) EndControlWrites();
  return sent ? absl::OkStatus() : StreamClosed();
}

absl::Status GrpcWorkerStream::SendBulk(uint64_t transfer_id, uint64_t offset,
                                        SharedBytes payload) {
  grpc::Slice slices[] = {
      grpc::Slice(EncodeBulkHeader(transfer_id, offset, payload.bytes)),
      SliceOf(payload)};
  payload.owner.reset();  // the slice's now
  const grpc::ByteBuffer frame(slices, 2);
  MutexLock lock(&bulk_mu_);
  DJINN_RETURN_IF_ERROR(EnsureBulk());
  return bulk_->Write(frame) ? absl::OkStatus() : StreamClosed();
}

void GrpcWorkerStream::Close(absl::Status status) {
  const bool clean = status.ok();
  if (!clean) {
    Break(std::move(status));
    return;
  }
  {
    MutexLock lock(&mu_);
    if (closing_) return;
    closing_ = true;
  }
  end_writes_ = true;
  EndControlWrites();
}

void GrpcWorkerStream::EndControlWrites() {
  // Whoever writes now comes here afterwards.
  if (!write_mu_.TryLock()) return;
  if (!writes_done_ && control_ != nullptr) {
    writes_done_ = true;
    control_->WritesDone();
  }
  write_mu_.Unlock();
}

void GrpcWorkerStream::Break(absl::Status status) {
  {
    MutexLock lock(&mu_);
    // A clean end that the worker did not follow may still be broken off.
    if (close_status_.ok()) close_status_ = std::move(status);
    closing_ = true;
  }
  control_context_.TryCancel();
  bulk_context_.TryCancel();
}

void GrpcWorkerStream::ReadControl() {
  v1::ControlResponse response;
  while (control_->Read(&response)) {
    receiver_->OnMessage(std::move(response));
    response.Clear();
  }
  {
    MutexLock lock(&mu_);
    closing_ = true;
  }
  bulk_context_.TryCancel();
  {
    MutexLock lock(&bulk_mu_);
    bulk_over_ = true;
  }
  if (bulk_reader_.joinable()) bulk_reader_.join();
  grpc::Status end;
  {
    // Nobody may write while the call finishes.
    MutexLock lock(&write_mu_);
    writes_done_ = true;
    end = control_->Finish();
  }
  absl::Status status;
  {
    MutexLock lock(&mu_);
    status = close_status_.ok() ? FromGrpcStatus(end) : close_status_;
  }
  receiver_->OnClosed(std::move(status));
  MutexLock lock(&mu_);
  ended_ = true;
  ended_changed_.SignalAll();
}

absl::Status GrpcWorkerStream::EnsureBulk() {
  if (bulk_over_) return StreamClosed();
  if (bulk_ != nullptr) return absl::OkStatus();
  const grpc::internal::RpcMethod method(
      kBulkMethod, grpc::internal::RpcMethod::BIDI_STREAMING, bulk_channel_);
  bulk_.reset(grpc::internal::ClientReaderWriterFactory<
              grpc::ByteBuffer, grpc::ByteBuffer>::Create(bulk_channel_.get(),
                                                          method,
                                                          &bulk_context_));
  bulk_reader_ = std::thread([this] { ReadBulk(); });
  grpc::Slice hello(EncodeBulkHello(hello_));
  return bulk_->Write(grpc::ByteBuffer(&hello, 1)) ? absl::OkStatus()
                                                   : StreamClosed();
}

void GrpcWorkerStream::ReadBulk() {
  BulkStream* stream;
  {
    MutexLock lock(&bulk_mu_);
    stream = bulk_.get();
  }
  grpc::ByteBuffer frame;
  absl::Status status;
  while (status.ok() && stream->Read(&frame)) status = TakeFrame(&frame);
  if (!status.ok()) bulk_context_.TryCancel();
  grpc::Status end;
  {
    MutexLock lock(&bulk_mu_);
    bulk_over_ = true;
    end = stream->Finish();
  }
  if (status.ok()) status = FromGrpcStatus(end);
  {
    // Control's end cancels this stream: then Control's status counts.
    MutexLock lock(&mu_);
    if (closing_) return;
  }
  Break(status.ok() ? absl::UnavailableError("the worker ended the bulk stream")
                    : std::move(status));
}

absl::Status GrpcWorkerStream::TakeFrame(grpc::ByteBuffer* frame) {
  std::vector<grpc::Slice> slices;
  if (!frame->Dump(&slices).ok()) {
    return absl::DataLossError("unreadable bulk frame");
  }
  absl::InlinedVector<absl::string_view, 32> pieces;
  for (const grpc::Slice& slice : slices) {
    pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                        slice.size());
  }
  DJINN_ASSIGN_OR_RETURN(const BulkFrame parsed, ParseBulkFrame(pieces));
  if (parsed.transfer_id == 0) return absl::OkStatus();
  DJINN_RETURN_IF_ERROR(VerifyChecksum(parsed));
  receiver_->OnBulk(parsed.transfer_id, parsed.offset, parsed.payload);
  return absl::OkStatus();
}

}  // namespace djinn
