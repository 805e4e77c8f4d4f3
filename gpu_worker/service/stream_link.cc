#include "gpu_worker/service/stream_link.h"

#include <chrono>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/grpc_status.h"
#include "common/net/raw_message.h"
#include "common/net/tls/tls.h"
#include "common/transport/arrival.h"
#include "djinn/v1/execution.pb.h"

namespace djinn::worker {
namespace {

// The most Control messages that wait to be written, besides the one being
// written.
constexpr size_t kControlQueue = 256;
// Many times the size of a Hello.
constexpr size_t kMaxHelloBytes = 64 << 10;
// The most bytes of messages that are sent together, not counting the last one.
constexpr size_t kTogetherBytes = 16 << 10;
// How long a peer has to accept the closing status, or to open Bulk when bytes
// wait.
constexpr std::chrono::seconds kCloseTimeout{5};
// How long gRPC has to end the calls of a peer that was cut off.
constexpr std::chrono::seconds kCutOffTimeout{1};
constexpr std::chrono::seconds kBulkTimeout{30};

// Makes a frame whose payload is the tensor's own memory.
grpc::ByteBuffer MakeFrame(uint64_t transfer_id, uint64_t offset,
                           SharedBytes payload, bool encrypted) {
  const std::string header =
      EncodeBulkHeader(transfer_id, offset, payload.bytes, encrypted);
  auto* const owner = new std::shared_ptr<const void>(std::move(payload.owner));
  const grpc::Slice slices[] = {
      grpc::Slice(header),
      grpc::Slice(
          const_cast<char*>(payload.bytes.data()), payload.bytes.size(),
          [](void* pinned) {
            delete static_cast<std::shared_ptr<const void>*>(pinned);
          },
          owner)};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace

// The Control call. Forwards to the link and keeps it alive.
class StreamLink::Control : public StreamLink::ControlReactor {
 public:
  Control(grpc::CallbackServerContext* context, CountedStream call,
          std::shared_ptr<StreamLink> link)
      : context_(context), call_(std::move(call)), link_(std::move(link)) {}

  void OnReadDone(bool ok) override { link_->OnControlRead(ok); }
  void OnWriteDone(bool ok) override { link_->OnControlWritten(ok); }
  void OnCancel() override {
    MutexLock lock(&link_->mu_);
    link_->cancelled_ = true;
    link_->CloseLocked(absl::UnavailableError("the client went away"));
  }
  void OnDone() override {
    link_->OnControlDone(context_->IsCancelled());
    delete this;
  }

  // Ends the call, and counts that. Called once.
  void End(const grpc::Status& status) {
    Finish(call_.EndWithoutSizes(status));
  }

  grpc::CallbackServerContext* context() { return context_; }
  grpc::ByteBuffer* request() { return &request_; }

 private:
  grpc::CallbackServerContext* const context_;
  CountedStream call_;
  const std::shared_ptr<StreamLink> link_;
  grpc::ByteBuffer request_;
};

// The stream object that the core owns.
class StreamLink::LinkStream : public WorkerStream {
 public:
  explicit LinkStream(std::shared_ptr<StreamLink> link)
      : link_(std::move(link)) {}
  ~LinkStream() override {
    link_->Close(absl::OkStatus());
    link_->WaitDone();
  }
  void Start(WorkerStreamReceiver* receiver) override {
    link_->Start(receiver);
  }
  bool Send(std::shared_ptr<const v1::ControlResponse> message) override {
    return link_->Send(std::move(message));
  }
  bool SendBulk(uint64_t transfer_id, uint64_t offset,
                SharedBytes payload) override {
    return link_->SendBulk(transfer_id, offset, std::move(payload));
  }
  void Close(absl::Status status) override { link_->Close(std::move(status)); }

 private:
  const std::shared_ptr<StreamLink> link_;
};

std::shared_ptr<StreamLink> StreamLink::Make(
    grpc::CallbackServerContext* context, CountedStream call,
    AcceptedFunction accepted) {
  std::shared_ptr<StreamLink> link(new StreamLink(IsEncrypted(*context)));
  link->accepted_ = std::move(accepted);
  MutexLock lock(&link->mu_);
  link->control_ = new Control(context, std::move(call), link);
  return link;
}

StreamLink::ControlReactor* StreamLink::control() {
  MutexLock lock(&mu_);
  return control_;
}

std::unique_ptr<WorkerStream> StreamLink::MakeStream() {
  return std::make_unique<LinkStream>(shared_from_this());
}

StreamLink::Identity StreamLink::identity() const {
  MutexLock lock(&mu_);
  return identity_;
}

void StreamLink::Start(WorkerStreamReceiver* receiver) {
  MutexLock lock(&mu_);
  receiver_ = receiver;
  ReadControlLocked();
}

void StreamLink::ReadControlLocked() {
  if (control_ == nullptr || control_finished_) return;
  control_->StartRead(control_->request());
}

bool StreamLink::Send(std::shared_ptr<const v1::ControlResponse> message) {
  // Reports the Hello before sending it: a client that has read it may open
  // Bulk, for this link and not for the previous one.
  if (message->has_hello()) accepted_(shared_from_this());
  MutexLock lock(&mu_);
  if (close_status_.has_value()) return true;
  control_queue_.push_back(std::move(message));
  WriteControlLocked();
  const bool room = control_queue_.size() < kControlQueue;
  control_stalled_ = !room;
  return room;
}

bool StreamLink::SendBulk(uint64_t transfer_id, uint64_t offset,
                          SharedBytes payload) {
  grpc::ByteBuffer frame =
      MakeFrame(transfer_id, offset, std::move(payload), encrypted_);
  MutexLock lock(&mu_);
  if (close_status_.has_value()) return true;
  const bool room = bulk_.Send(std::move(frame));
  if (!bulk_.seen() && !std::exchange(bulk_awaited_, true)) {
    no_bulk_.Set(std::chrono::system_clock::now() + kBulkTimeout,
                 [weak = weak_from_this()](bool expired) {
                   const std::shared_ptr<StreamLink> link = weak.lock();
                   if (expired && link != nullptr) link->CheckBulk();
                 });
  }
  return room;
}

void StreamLink::CheckBulk() {
  MutexLock lock(&mu_);
  if (bulk_.seen()) return;
  CloseLocked(MakeError(absl::StatusCode::kInvalidArgument,
                        "PROTOCOL_VIOLATION",
                        "asked for bulk bytes without opening Bulk"));
}

void StreamLink::WriteControlLocked() {
  if (control_writing_ || control_finished_ || control_queue_.empty() ||
      control_ == nullptr) {
    return;
  }
  absl::InlinedVector<std::shared_ptr<const v1::ControlResponse>, 8> messages;
  absl::InlinedVector<const google::protobuf::MessageLite*, 8> together;
  for (size_t bytes = 0; !control_queue_.empty() &&
                         (messages.empty() || bytes < kTogetherBytes);) {
    bytes += control_queue_.front()->ByteSizeLong();
    messages.push_back(std::move(control_queue_.front()));
    control_queue_.pop_front();
    together.push_back(messages.back().get());
  }
  const grpc::Slice slice =
      EncodeTogether(together, v1::ControlResponse::kFollowingFieldNumber);
  control_current_ = grpc::ByteBuffer(&slice, 1);
  control_writing_ = true;
  control_->StartWrite(&control_current_);
}

void StreamLink::Close(absl::Status status) {
  MutexLock lock(&mu_);
  CloseLocked(std::move(status));
}

void StreamLink::CloseLocked(absl::Status status) {
  if (close_status_.has_value()) return;
  if (!status.ok()) {
    control_queue_.clear();
    bulk_.Clear();
  }
  close_status_ = std::move(status);
  changed_.SignalAll();
  FinishLocked();
  if (OverLocked()) return;
  const auto cut_off = std::chrono::system_clock::now() + kCloseTimeout;
  cut_off_.Set(cut_off, [weak = weak_from_this()](bool expired) {
    const std::shared_ptr<StreamLink> link = weak.lock();
    if (expired && link != nullptr) link->CutOff();
  });
  give_up_.Set(cut_off + kCutOffTimeout,
               [weak = weak_from_this()](bool expired) {
                 const std::shared_ptr<StreamLink> link = weak.lock();
                 if (expired && link != nullptr) link->GiveUp();
               });
}

void StreamLink::FinishLocked() {
  if (!close_status_.has_value()) return;
  const grpc::Status status = ToGrpcStatus(*close_status_);
  if (control_ != nullptr && !control_finished_ && !control_writing_ &&
      control_queue_.empty()) {
    control_finished_ = true;
    control_->End(status);
  }
  // Bulk ends after Control's bytes are sent, so that a clean end delivers what
  // Control announced.
  bulk_.Finish(status);
}

void StreamLink::CutOff() {
  MutexLock lock(&mu_);
  if (control_ != nullptr) control_->context()->TryCancel();
  bulk_.CutOff();
}

void StreamLink::GiveUp() {
  {
    MutexLock lock(&mu_);
    if (reported_) return;
    log::Warning("a client that takes nothing keeps its calls",
                 {{"session", log::ShortId(identity_.session_id)}});
    // Bulk calls that arrive from now on are for another link.
    identity_ = {};
    // Only the ends of the calls would tell whether the client said goodbye or
    // broke off.
    if (close_status_->ok()) {
      close_status_ = absl::UnavailableError("the client went away");
    }
  }
  Report();
}

void StreamLink::OnControlRead(bool ok) {
  WorkerStreamReceiver* receiver = nullptr;
  v1::ControlRequest message;
  {
    MutexLock lock(&mu_);
    if (!ok) {
      // The client sends no more. That is a clean end, unless the client
      // vanished.
      CloseLocked(cancelled_ ? absl::UnavailableError("the client went away")
                             : absl::OkStatus());
      return;
    }
    if (close_status_.has_value()) return;
    Arrival::Note();
    // Refuses to parse a large message from a client that has not sent its
    // Hello.
    absl::Status parsed;
    if (const size_t bytes = control_->request()->Length();
        identity_.session_id.empty() && bytes > kMaxHelloBytes) {
      parsed = MakeError(
          absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
          absl::StrCat("a first message of ", bytes, " bytes, at most ",
                       kMaxHelloBytes, " are allowed"));
    } else {
      parsed = ParseRawMessage(control_->request(), &message);
    }
    if (!parsed.ok()) {
      log::Warning("client sent no message",
                   {{"session", log::ShortId(identity_.session_id)},
                    {"peer", control_->context()->peer()},
                    {"error", parsed}});
      return CloseLocked(parsed);
    }
    receiver = BeginCallLocked();
    if (message.has_hello() && identity_.session_id.empty()) {
      identity_ = {message.hello().session_id(), message.hello().lease_token()};
    }
  }
  if (receiver != nullptr) {
    receiver->OnMessage(std::move(message));
    EndCall();
  }
  MutexLock lock(&mu_);
  ReadControlLocked();
}

void StreamLink::OnControlWritten(bool ok) {
  WorkerStreamReceiver* receiver = nullptr;
  {
    MutexLock lock(&mu_);
    control_writing_ = false;
    control_current_.Clear();
    if (!ok) {
      CloseLocked(absl::UnavailableError("the client went away"));
      control_queue_.clear();
    }
    WriteControlLocked();
    if (control_stalled_ && control_queue_.size() <= kControlQueue / 2) {
      control_stalled_ = false;
      receiver = BeginCallLocked();
    }
  }
  if (receiver != nullptr) {
    receiver->OnRoom();
    EndCall();
  }
  // Comes last, because it may end the link.
  MutexLock lock(&mu_);
  FinishLocked();
}

void StreamLink::OnControlDone(bool cancelled) {
  {
    MutexLock lock(&mu_);
    control_ = nullptr;
    // A broken connection ends reading like a client that is done. Only this
    // callback tells them apart.
    if (cancelled && close_status_.has_value() && close_status_->ok()) {
      close_status_ = absl::UnavailableError("the client went away");
    }
    // OnDone() comes only after Finish(), so there is a status.
    FinishLocked();
  }
  ReportIfOver();
}

absl::Status StreamLink::AttachBulk(BulkReactor* bulk) {
  MutexLock lock(&mu_);
  if (close_status_.has_value()) {
    return close_status_->ok() ? absl::CancelledError("stream is closed")
                               : *close_status_;
  }
  if (bulk_.size() >= kMaxBulkCalls) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, "LEASE_IN_USE",
        absl::StrCat("the lease has ", kMaxBulkCalls,
                     " Bulk streams already, the most that it may have"));
  }
  DJINN_RETURN_IF_ERROR(bulk->Join(shared_from_this()));
  bulk_.Add(bulk);
  return absl::OkStatus();
}

void StreamLink::ReadBulkOn(BulkReactor* bulk) {
  MutexLock lock(&mu_);
  bulk_.ReadOn(bulk);
}

void StreamLink::OnBulkFrame(const absl::StatusOr<BulkFrame>& frame,
                             bool encrypted) {
  absl::Status status = frame.status();
  if (status.ok()) status = VerifyChecksum(*frame, encrypted);
  WorkerStreamReceiver* receiver = nullptr;
  {
    MutexLock lock(&mu_);
    if (!status.ok()) CloseLocked(status);
    if (close_status_.has_value() || frame->transfer_id == 0) return;
    receiver = BeginCallLocked();
  }
  if (receiver == nullptr) return;
  receiver->OnBulk(frame->transfer_id, frame->offset, frame->payload);
  EndCall();
}

void StreamLink::OnBulkLost() {
  MutexLock lock(&mu_);
  CloseLocked(absl::UnavailableError("the client's Bulk stream broke"));
}

void StreamLink::OnBulkWritten(BulkReactor* bulk, bool ok) {
  WorkerStreamReceiver* receiver = nullptr;
  {
    MutexLock lock(&mu_);
    bulk_.NoteWritten(bulk);
    if (!ok) {
      CloseLocked(absl::UnavailableError("the client's Bulk stream broke"));
      bulk_.Clear();
    }
    bulk_.WriteNext();
    if (bulk_.HasRoomAgain()) receiver = BeginCallLocked();
  }
  if (receiver != nullptr) {
    receiver->OnBulkRoom();
    EndCall();
  }
  MutexLock lock(&mu_);
  FinishLocked();
}

void StreamLink::OnBulkDone(BulkReactor* bulk) {
  {
    MutexLock lock(&mu_);
    bulk_.Remove(bulk);
  }
  ReportIfOver();
}

bool StreamLink::OverLocked() const {
  return control_ == nullptr && bulk_.size() == 0;
}

WorkerStreamReceiver* StreamLink::BeginCallLocked() {
  if (reported_ || receiver_ == nullptr) return nullptr;
  ++calling_;
  return receiver_;
}

void StreamLink::EndCall() {
  MutexLock lock(&mu_);
  --calling_;
  changed_.SignalAll();
}

void StreamLink::ReportIfOver() {
  {
    MutexLock lock(&mu_);
    if (!OverLocked()) return;
  }
  Report();
}

void StreamLink::Report() {
  WorkerStreamReceiver* receiver;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    if (std::exchange(reported_, true)) return;
    // Other threads may call the receiver here only when gRPC has not ended the
    // calls.
    while (calling_ > 0) changed_.Wait(&mu_);
    receiver = receiver_;
    status = *close_status_;
  }
  cut_off_.Cancel();
  give_up_.Cancel();
  no_bulk_.Cancel();
  if (receiver != nullptr) receiver->OnClosed(std::move(status));
  MutexLock lock(&mu_);
  done_ = true;
  changed_.SignalAll();
}

void StreamLink::WaitDone() {
  MutexLock lock(&mu_);
  // A stream that was never started has no callbacks to wait for.
  while (receiver_ != nullptr && !done_) changed_.Wait(&mu_);
}

}  // namespace djinn::worker
