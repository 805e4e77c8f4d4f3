#include "client_lib/transport/grpc_worker_stream.h"

#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/net/grpc_status.h"
#include "common/status_macros.h"
#include "common/transport/bulk_frame.h"
#include "grpcpp/impl/codegen/rpc_method.h"

namespace djinn {
namespace {

// How long a worker may take to end a stream that was closed cleanly.
constexpr absl::Duration kCleanEndTimeout = absl::Seconds(2);

// How long a lane that ended without a reason waits for Control's.
constexpr absl::Duration kControlsWord = absl::Milliseconds(200);

// How many times the watcher looks during the time that a write may take.
constexpr int kLooks = 8;

constexpr char kBulkMethod[] = "/djinn.v1.Execution/Bulk";

absl::Status StreamClosed() {
  return absl::CancelledError("the stream is closed");
}

// Marks a write as begun while it lives.
class Writing {
 public:
  explicit Writing(std::atomic<int64_t>* start) : start_(start) {
    *start_ = absl::ToInt64Nanoseconds(Clock::Real()->Monotonic());
  }
  ~Writing() { *start_ = 0; }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  std::atomic<int64_t>* const start_;
};

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
    std::vector<std::shared_ptr<grpc::Channel>> bulk_channels,
    v1::BulkHello hello, Options options)
    : control_channel_(std::move(control_channel)),
      hello_(std::move(hello)),
      options_(std::move(options)),
      stub_(v1::Execution::NewStub(control_channel_)) {
  // Headers travel with the first message, so that opening does not wait.
  control_context_.set_initial_metadata_corked(true);
  for (std::shared_ptr<grpc::Channel>& channel : bulk_channels) {
    Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
    lane.channel = std::move(channel);
    lane.context.set_initial_metadata_corked(true);
  }
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
  watcher_.join();
}

void GrpcWorkerStream::Start(ClientStreamReceiver* receiver) {
  receiver_ = receiver;
  {
    MutexLock lock(&write_mu_);
    control_ = stub_->Control(&control_context_);
  }
  control_reader_ = std::thread([this] { ReadControl(); });
  watcher_ = std::thread([this] { Watch(); });
}

absl::Status GrpcWorkerStream::Send(
    std::shared_ptr<const v1::ControlRequest> message) {
  if (message->has_hello()) resuming_ = message->hello().has_resume();
  // The value will come on Bulk: the worker must know where that is.
  if (message->ordered().read().transfer_id() != 0) EnsureBulk();
  bool sent = false;
  {
    MutexLock lock(&write_mu_);
    if (control_ != nullptr && !writes_done_ && !end_writes_) {
      const Writing writing(&control_writing_);
      sent = control_->Write(*message);
    }
  }
  if (end_writes_) EndControlWrites();
  return sent ? absl::OkStatus() : StreamClosed();
}

absl::Status GrpcWorkerStream::SendBulk(uint64_t transfer_id, uint64_t offset,
                                        SharedBytes payload) {
  grpc::Slice slices[] = {
      grpc::Slice(EncodeBulkHeader(transfer_id, offset, payload.bytes,
                                   options_.encrypted)),
      SliceOf(payload)};
  payload.owner.reset();  // the slice's now
  const grpc::ByteBuffer frame(slices, 2);
  EnsureBulk();
  Lane& lane = *lanes_[next_lane_.fetch_add(1, std::memory_order_relaxed) %
                       lanes_.size()];
  MutexLock lock(&lane.mu);
  while (lane.stream == nullptr && !lane.over) lane.opened.Wait(&lane.mu);
  if (lane.over) return StreamClosed();
  const Writing writing(&lane.writing);
  return lane.stream->Write(frame) ? absl::OkStatus() : StreamClosed();
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
  CancelLanes();
}

void GrpcWorkerStream::CancelLanes() {
  for (const auto& lane : lanes_) lane->context.TryCancel();
}

void GrpcWorkerStream::ReadControl() {
  v1::ControlResponse response;
  bool answered = false;
  while (control_->Read(&response)) {
    answered = true;
    // Values of an earlier stream may be on their way.
    if (response.has_hello() && resuming_) EnsureBulk();
    receiver_->OnMessage(std::move(response));
    response.Clear();
  }
  {
    MutexLock lock(&mu_);
    closing_ = true;
    ended_changed_.SignalAll();
  }
  bool bulk_started;
  {
    MutexLock lock(&bulk_mu_);
    bulk_over_ = true;
    bulk_started = bulk_started_;
  }
  CancelLanes();
  if (bulk_started) {
    for (const auto& lane : lanes_) lane->thread.join();
  }
  for (const auto& lane : lanes_) {
    MutexLock lock(&lane->mu);
    lane->over = true;
    lane->opened.SignalAll();
  }
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
    status = close_status_;
  }
  if (status.ok()) {
    status = FromGrpcStatus(end);
    if (!answered) status = options_.explain(std::move(status));
  }
  receiver_->OnClosed(std::move(status));
  MutexLock lock(&mu_);
  ended_ = true;
  ended_changed_.SignalAll();
}

void GrpcWorkerStream::EnsureBulk() {
  MutexLock lock(&bulk_mu_);
  if (bulk_started_ || bulk_over_) return;
  bulk_started_ = true;
  for (const auto& lane : lanes_) {
    lane->thread = std::thread([this, lane = lane.get()] { RunLane(lane); });
  }
}

void GrpcWorkerStream::RunLane(Lane* lane) {
  const grpc::internal::RpcMethod method(
      kBulkMethod, grpc::internal::RpcMethod::BIDI_STREAMING, lane->channel);
  std::unique_ptr<BulkStream> owned(
      grpc::internal::ClientReaderWriterFactory<
          grpc::ByteBuffer, grpc::ByteBuffer>::Create(lane->channel.get(),
                                                      method, &lane->context));
  BulkStream* const stream = owned.get();
  grpc::Slice hello(EncodeBulkHello(hello_));
  absl::Status status;
  if (stream->Write(grpc::ByteBuffer(&hello, 1))) {
    {
      MutexLock lock(&lane->mu);
      lane->stream = std::move(owned);
      lane->opened.SignalAll();
    }
    status = ReadLane(stream);
    if (!status.ok()) lane->context.TryCancel();
  }
  grpc::Status end;
  {
    MutexLock lock(&lane->mu);
    lane->over = true;
    lane->opened.SignalAll();
    end = stream->Finish();
  }
  if (status.ok()) status = FromGrpcStatus(end);
  {
    // Control's end ends the lanes, too: then Control's status counts.
    MutexLock lock(&mu_);
    if (!closing_ && ErrorReason(status).empty()) {
      ended_changed_.WaitWithTimeout(&mu_, kControlsWord);
    }
    if (closing_) return;
  }
  Break(status.ok() ? absl::UnavailableError("the worker ended a bulk lane")
                    : std::move(status));
}

absl::Status GrpcWorkerStream::ReadLane(BulkStream* stream) {
  grpc::ByteBuffer frame;
  while (stream->Read(&frame)) {
    DJINN_RETURN_IF_ERROR(TakeFrame(&frame));
  }
  return absl::OkStatus();
}

void GrpcWorkerStream::Watch() {
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (!ended_) {
        ended_changed_.WaitWithTimeout(&mu_, options_.stuck_write / kLooks);
      }
      if (ended_) return;
    }
    bool stuck = IsStuck(control_writing_);
    for (const auto& lane : lanes_) stuck |= IsStuck(lane->writing);
    if (!stuck) continue;
    Break(absl::UnavailableError(
        absl::StrCat("the worker took nothing for ",
                     absl::FormatDuration(options_.stuck_write))));
  }
}

bool GrpcWorkerStream::IsStuck(const WriteStart& writing) const {
  const int64_t start = writing;
  return start != 0 && Clock::Real()->Monotonic() - absl::Nanoseconds(start) >
                           options_.stuck_write;
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
  DJINN_RETURN_IF_ERROR(VerifyChecksum(parsed, options_.encrypted));
  receiver_->OnBulk(parsed.transfer_id, parsed.offset, parsed.payload);
  return absl::OkStatus();
}

}  // namespace djinn
