#include "client_lib/transport/grpc_worker_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/grpc_status.h"
#include "common/net/raw_message.h"
#include "common/transport/bulk_frame.h"

namespace djinn {
namespace {

// Time that a worker may take to end a stream that was closed cleanly.
constexpr absl::Duration kCleanEndTimeout = absl::Seconds(2);

// Time that a leader waits for a message on Control before it returns.
constexpr absl::Duration kLeadership = absl::Milliseconds(2);

// Time that a bulk connection which ended without a reason waits for Control,
// whose end has a reason.
constexpr absl::Duration kControlsWord = absl::Milliseconds(200);

// Number of checks by the watcher during the time that a write may take.
constexpr int kLooks = 8;

constexpr char kControlMethod[] = "/djinn.v1.Execution/Control";
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

GrpcWorkerStream::Lane::Lane(std::shared_ptr<grpc::Channel> channel)
    : call(std::move(channel), kBulkMethod) {}

GrpcWorkerStream::GrpcWorkerStream(
    std::shared_ptr<grpc::Channel> control_channel,
    std::vector<std::shared_ptr<grpc::Channel>> bulk_channels,
    v1::BulkHello hello, Options options)
    : hello_(std::move(hello)),
      options_(std::move(options)),
      control_(std::move(control_channel), kControlMethod),
      bulk_channels_(std::move(bulk_channels)) {}

GrpcWorkerStream::~GrpcWorkerStream() {
  Close(absl::OkStatus());
  if (!control_reader_.joinable()) return;
  {
    MutexLock lock(&mu_);
    if (!ended_) ended_changed_.WaitWithTimeout(&mu_, kCleanEndTimeout);
  }
  control_.Cancel();
  control_reader_.join();
  watcher_.join();
}

void GrpcWorkerStream::Start(ClientStreamReceiver* receiver) {
  receiver_ = receiver;
  control_reader_ = std::thread([this] { ReadControl(); });
  watcher_ = std::thread([this] { Watch(); });
}

absl::Status GrpcWorkerStream::Send(
    std::shared_ptr<const v1::ControlRequest> message) {
  if (!message->has_hello()) return SendAll({&message, 1});
  resuming_ = message->hello().has_resume();
  if (end_writes_ || !control_.WriteMessage(*message)) return StreamClosed();
  WarmBulk();
  return absl::OkStatus();
}

absl::Status GrpcWorkerStream::SendAll(
    absl::Span<const std::shared_ptr<const v1::ControlRequest>> messages) {
  absl::InlinedVector<const google::protobuf::MessageLite*, 16> together;
  for (const auto& message : messages) {
    // The value will come on Bulk, so the worker must have a bulk connection.
    if (message->ordered().read().transfer_id() != 0) EnsureBulk();
    together.push_back(message.get());
  }
  const grpc::Slice slice =
      EncodeTogether(together, v1::ControlRequest::kFollowingFieldNumber);
  if (end_writes_ || !control_.Write({&slice, 1})) return StreamClosed();
  return absl::OkStatus();
}

absl::Status GrpcWorkerStream::SendBulk(uint64_t transfer_id, uint64_t offset,
                                        SharedBytes payload) {
  if (!EnsureBulk()) return StreamClosed();
  // The program may write to its tensor before gRPC reads the tensor. A chunk
  // with a checksum is therefore a copy, because a later write would invalidate
  // the checksum.
  const grpc::Slice body =
      options_.encrypted
          ? SliceOf(payload)
          : grpc::Slice(payload.bytes.data(), payload.bytes.size());
  payload.owner.reset();  // the slice owns it now, or it is not needed
  const grpc::Slice frame[] = {
      grpc::Slice(EncodeBulkHeader(
          transfer_id, offset,
          {reinterpret_cast<const char*>(body.begin()), body.size()},
          options_.encrypted)),
      body};
  Lane& lane = *lanes_[next_lane_.fetch_add(1, std::memory_order_relaxed) %
                       lanes_.size()];
  return lane.call.Write(frame) ? absl::OkStatus() : StreamClosed();
}

void GrpcWorkerStream::Close(absl::Status status) {
  if (!status.ok()) {
    Break(std::move(status));
    return;
  }
  {
    MutexLock lock(&mu_);
    if (closing_) return;
    closing_ = true;
  }
  end_writes_ = true;
  // The watcher ends a write that is stuck.
  (void)control_.EndWrites();
}

void GrpcWorkerStream::Break(absl::Status status) {
  {
    MutexLock lock(&mu_);
    // A clean end that the worker did not follow may still be broken off.
    if (close_status_.ok()) close_status_ = std::move(status);
    closing_ = true;
  }
  control_.Cancel();
  CancelLanes();
}

void GrpcWorkerStream::CancelLanes() {
  MutexLock lock(&bulk_mu_);
  bulk_over_ = true;
  for (const auto& lane : lanes_) lane->call.Cancel();
}

bool GrpcWorkerStream::Receive(absl::Duration patience) {
  v1::ControlResponse response;
  switch (control_.TryReadMessage(patience, &response, &invalid_)) {
    case BoundedCall::Received::kNothing:
      return false;
    case BoundedCall::Received::kEnd:
      over_ = true;
      return true;
    case BoundedCall::Received::kMessage:
      break;
  }
  answered_ = true;
  // Values requested on an earlier stream may be on their way.
  if (response.has_hello() && resuming_) EnsureBulk();
  google::protobuf::RepeatedPtrField<v1::ControlResponse> following;
  following.Swap(response.mutable_following());
  receiver_->OnMessage(std::move(response));
  for (v1::ControlResponse& next : following) {
    if (next.following_size() > 0) {
      invalid_ = MakeError(absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
                           "what follows a message of the worker's has "
                           "something that follows it");
      over_ = true;
      break;
    }
    receiver_->OnMessage(std::move(next));
  }
  return true;
}

bool GrpcWorkerStream::Lead(absl::FunctionRef<bool()> done,
                            absl::Duration patience) {
  switch (role_.Take(done, patience)) {
    case ReceiverRole::Turn::kRefused:
      return false;
    case ReceiverRole::Turn::kOver:
      return true;
    case ReceiverRole::Turn::kTaken:
      break;
  }
  // A thread cannot interrupt a wait in gRPC, so none waits in it for long.
  const absl::Duration at_most = std::min(patience, kLeadership);
  bool came = true;
  while (came && !over_ && !role_.reclaimed() && !done()) {
    came = Receive(at_most);
  }
  if (!came || over_) role_.Reclaim();
  role_.Leave();
  return true;
}

void GrpcWorkerStream::ReadControl() {
  while (!over_) {
    Receive(absl::InfiniteDuration());
    if (!over_) role_.Lend();
  }
  role_.End();
  if (!invalid_.ok()) Break(invalid_);
  {
    MutexLock lock(&mu_);
    closing_ = true;
    ended_changed_.SignalAll();
  }
  CancelLanes();
  for (const auto& lane : lanes_) lane->thread.join();
  const grpc::Status end = control_.Finish();
  control_.Cancel();  // ends a write of another thread
  absl::Status status;
  {
    MutexLock lock(&mu_);
    status = close_status_;
  }
  const bool broken_here = !status.ok();
  if (!broken_here) status = FromGrpcStatus(end);
  // The worker's errors have reasons, and a local close has the code Cancelled.
  if (broken_here ? !absl::IsCancelled(status)
                  : !status.ok() && ErrorReason(status).empty()) {
    options_.broke();
  }
  if (!broken_here && !answered_) status = options_.explain(std::move(status));
  receiver_->OnClosed(std::move(status));
  MutexLock lock(&mu_);
  ended_ = true;
  ended_changed_.SignalAll();
}

void GrpcWorkerStream::WarmBulk() {
  MutexLock lock(&bulk_mu_);
  for (const std::shared_ptr<grpc::Channel>& channel : bulk_channels_) {
    (void)channel->GetState(/*try_to_connect=*/true);
  }
}

bool GrpcWorkerStream::EnsureBulk() {
  MutexLock lock(&bulk_mu_);
  if (bulk_over_) return false;
  const grpc::Slice hello(EncodeBulkHello(hello_));
  for (std::shared_ptr<grpc::Channel>& channel :
       std::exchange(bulk_channels_, {})) {
    Lane* const lane =
        lanes_.emplace_back(std::make_unique<Lane>(std::move(channel))).get();
    (void)lane->call.Write({&hello, 1});
    lane->thread = std::thread([this, lane] { RunLane(lane); });
  }
  return true;
}

void GrpcWorkerStream::RunLane(Lane* lane) {
  std::vector<grpc::Slice> frame;
  absl::Status status;
  while (status.ok() && lane->call.Read(&frame)) status = TakeFrame(frame);
  if (!status.ok()) lane->call.Cancel();
  const grpc::Status end = lane->call.Finish();
  if (status.ok()) status = FromGrpcStatus(end);
  {
    // The end of Control also ends the bulk connections, and then Control's
    // status counts.
    MutexLock lock(&mu_);
    if (!closing_ && ErrorReason(status).empty()) {
      ended_changed_.WaitWithTimeout(&mu_, kControlsWord);
    }
    if (closing_) return;
  }
  Break(status.ok() ? absl::UnavailableError("the worker ended a bulk lane")
                    : std::move(status));
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
    if (end_writes_) (void)control_.EndWrites();
    if (!IsStuck()) continue;
    Break(absl::UnavailableError(
        absl::StrCat("the worker took nothing for ",
                     absl::FormatDuration(options_.stuck_write))));
  }
}

bool GrpcWorkerStream::IsStuck() {
  absl::Duration longest = control_.WritingFor();
  MutexLock lock(&bulk_mu_);
  for (const auto& lane : lanes_) {
    longest = std::max(longest, lane->call.WritingFor());
  }
  return longest > options_.stuck_write;
}

absl::Status GrpcWorkerStream::TakeFrame(absl::Span<const grpc::Slice> frame) {
  absl::InlinedVector<absl::string_view, 32> pieces;
  for (const grpc::Slice& slice : frame) {
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
