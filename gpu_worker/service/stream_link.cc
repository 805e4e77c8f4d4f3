#include "gpu_worker/service/stream_link.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/error.h"
#include "common/net/grpc_status.h"
#include "common/transport/bulk_frame.h"

namespace djinn::worker {
namespace {

// Waiting to be written, besides the one being written.
constexpr size_t kControlQueue = 256;
constexpr size_t kBulkQueue = 4;
// Time a peer has to take the closing status, or to open Bulk when bytes wait.
constexpr std::chrono::seconds kCloseTimeout{5};
constexpr std::chrono::seconds kBulkTimeout{30};
constexpr std::chrono::seconds kBulkHelloTimeout{10};

absl::InlinedVector<grpc::Slice, 32> SlicesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> dumped;
  buffer.Dump(&dumped).ok();
  return {std::make_move_iterator(dumped.begin()),
          std::make_move_iterator(dumped.end())};
}

// A frame whose payload is the tensor's own memory.
grpc::ByteBuffer MakeFrame(uint64_t transfer_id, uint64_t offset,
                           SharedBytes payload) {
  const std::string header =
      EncodeBulkHeader(transfer_id, offset, payload.bytes);
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

// The Control call; forwards to the link and keeps it alive.
class StreamLink::Control : public StreamLink::ControlReactor {
 public:
  Control(grpc::CallbackServerContext* context,
          std::shared_ptr<StreamLink> link)
      : context_(context), link_(std::move(link)) {}

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

  grpc::CallbackServerContext* context() { return context_; }
  v1::ControlRequest* request() { return &request_; }

 private:
  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<StreamLink> link_;
  v1::ControlRequest request_;
};

// What the core owns.
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
    grpc::CallbackServerContext* context, AcceptedFunction accepted) {
  std::shared_ptr<StreamLink> link(new StreamLink);
  link->accepted_ = std::move(accepted);
  MutexLock lock(&link->mu_);
  link->control_ = new Control(context, link);
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
  if (control_ != nullptr && !control_finished_) {
    control_->StartRead(control_->request());
  }
}

bool StreamLink::Send(std::shared_ptr<const v1::ControlResponse> message) {
  const bool accepted = message->has_hello();
  bool room = true;
  {
    MutexLock lock(&mu_);
    if (close_status_.has_value()) return true;
    control_queue_.push_back(std::move(message));
    WriteControlLocked();
    room = control_queue_.size() < kControlQueue;
    control_stalled_ = !room;
  }
  if (accepted) accepted_(shared_from_this());
  return room;
}

bool StreamLink::SendBulk(uint64_t transfer_id, uint64_t offset,
                          SharedBytes payload) {
  grpc::ByteBuffer frame = MakeFrame(transfer_id, offset, std::move(payload));
  MutexLock lock(&mu_);
  if (close_status_.has_value()) return true;
  bulk_queue_.push_back({std::move(frame)});
  WriteBulkLocked();
  if (!bulk_seen_ && !std::exchange(bulk_awaited_, true)) {
    no_bulk_.Set(std::chrono::system_clock::now() + kBulkTimeout,
                 [weak = weak_from_this()](bool expired) {
                   const std::shared_ptr<StreamLink> link = weak.lock();
                   if (expired && link != nullptr) link->CheckBulk();
                 });
  }
  const bool room = bulk_queue_.size() < kBulkQueue;
  bulk_stalled_ = !room;
  return room;
}

void StreamLink::CheckBulk() {
  MutexLock lock(&mu_);
  if (bulk_seen_) return;
  CloseLocked(MakeError(absl::StatusCode::kInvalidArgument,
                        "PROTOCOL_VIOLATION",
                        "asked for bulk bytes without opening Bulk"));
}

void StreamLink::WriteControlLocked() {
  if (control_writing_ || control_finished_ || control_queue_.empty() ||
      control_ == nullptr) {
    return;
  }
  control_current_ = std::move(control_queue_.front());
  control_queue_.pop_front();
  control_writing_ = true;
  control_->StartWrite(control_current_.get());
}

void StreamLink::WriteBulkLocked() {
  if (bulk_writing_ || bulk_finished_ || bulk_queue_.empty() ||
      bulk_ == nullptr) {
    return;
  }
  bulk_current_ = std::move(bulk_queue_.front());
  bulk_queue_.pop_front();
  bulk_writing_ = true;
  bulk_->StartWrite(&bulk_current_.frame);
}

void StreamLink::Close(absl::Status status) {
  MutexLock lock(&mu_);
  CloseLocked(std::move(status));
}

void StreamLink::CloseLocked(absl::Status status) {
  if (close_status_.has_value()) return;
  if (!status.ok()) {
    control_queue_.clear();
    bulk_queue_.clear();
  }
  close_status_ = std::move(status);
  changed_.SignalAll();
  FinishLocked();
  if (OverLocked()) return;
  cut_off_.Set(std::chrono::system_clock::now() + kCloseTimeout,
               [weak = weak_from_this()](bool expired) {
                 const std::shared_ptr<StreamLink> link = weak.lock();
                 if (expired && link != nullptr) link->CutOff();
               });
}

void StreamLink::FinishLocked() {
  if (!close_status_.has_value()) return;
  const grpc::Status status = ToGrpcStatus(*close_status_);
  if (control_ != nullptr && !control_finished_ && !control_writing_ &&
      control_queue_.empty()) {
    control_finished_ = true;
    control_->Finish(status);
  }
  // Bulk follows Control, so that a clean end delivers what Control announced.
  if (bulk_ != nullptr && !bulk_finished_ && !bulk_writing_ &&
      bulk_queue_.empty()) {
    bulk_finished_ = true;
    bulk_->Finish(status);
  }
}

void StreamLink::CutOff() {
  MutexLock lock(&mu_);
  if (control_ != nullptr) control_->context()->TryCancel();
  if (bulk_ != nullptr) bulk_->context_->TryCancel();
}

void StreamLink::OnControlRead(bool ok) {
  WorkerStreamReceiver* receiver = nullptr;
  v1::ControlRequest message;
  {
    MutexLock lock(&mu_);
    if (!ok) {
      // The client sends no more: a clean end, unless it vanished.
      CloseLocked(cancelled_ ? absl::UnavailableError("the client went away")
                             : absl::OkStatus());
      return;
    }
    if (close_status_.has_value()) return;
    receiver = receiver_;
    message = std::move(*control_->request());
    if (message.has_hello() && identity_.session_id.empty()) {
      identity_ = {message.hello().session_id(), message.hello().lease_token()};
    }
  }
  receiver->OnMessage(std::move(message));
  MutexLock lock(&mu_);
  if (control_finished_) return;
  control_->request()->Clear();
  control_->StartRead(control_->request());
}

void StreamLink::OnControlWritten(bool ok) {
  WorkerStreamReceiver* receiver = nullptr;
  {
    MutexLock lock(&mu_);
    control_writing_ = false;
    if (!ok) {
      CloseLocked(absl::UnavailableError("the client went away"));
      control_queue_.clear();
    }
    WriteControlLocked();
    if (control_stalled_ && control_queue_.size() <= kControlQueue / 2) {
      control_stalled_ = false;
      receiver = receiver_;
    }
  }
  if (receiver != nullptr) receiver->OnRoom();
  // Last: it may be the end.
  MutexLock lock(&mu_);
  FinishLocked();
}

void StreamLink::OnControlDone(bool cancelled) {
  {
    MutexLock lock(&mu_);
    control_ = nullptr;
    // A connection that broke ends reading like a client that is done, and is
    // known from it only now.
    if (cancelled && close_status_.has_value() && close_status_->ok()) {
      close_status_ = absl::UnavailableError("the client went away");
    }
    // Only after Finish(), so there is a status.
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
  if (bulk_seen_) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_IN_USE",
                     "another Bulk stream uses this lease");
  }
  {
    MutexLock bulk_lock(&bulk->mu_);
    if (bulk->refused_) return absl::CancelledError("the call has ended");
    bulk->link_ = shared_from_this();
  }
  bulk_seen_ = true;
  bulk_ = bulk;
  bulk->StartRead(&bulk->frame_);
  WriteBulkLocked();
  return absl::OkStatus();
}

void StreamLink::ReadBulkOn(BulkReactor* bulk) {
  MutexLock lock(&mu_);
  if (!bulk_finished_) bulk->StartRead(&bulk->frame_);
}

void StreamLink::OnBulkFrame(grpc::ByteBuffer* buffer) {
  const absl::InlinedVector<grpc::Slice, 32> slices = SlicesOf(*buffer);
  buffer->Clear();
  absl::InlinedVector<absl::string_view, 32> pieces;
  for (const grpc::Slice& slice : slices) {
    pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                        slice.size());
  }
  absl::StatusOr<BulkFrame> frame = ParseBulkFrame(pieces);
  absl::Status status = frame.status();
  if (status.ok()) status = VerifyChecksum(*frame);
  WorkerStreamReceiver* receiver = nullptr;
  {
    MutexLock lock(&mu_);
    if (!status.ok()) CloseLocked(status);
    if (close_status_.has_value()) return;
    receiver = receiver_;
  }
  if (frame->transfer_id != 0) {
    receiver->OnBulk(frame->transfer_id, frame->offset, frame->payload);
  }
}

void StreamLink::OnBulkLost() {
  MutexLock lock(&mu_);
  CloseLocked(absl::UnavailableError("the client's Bulk stream broke"));
}

void StreamLink::OnBulkWritten(bool ok) {
  WorkerStreamReceiver* receiver = nullptr;
  {
    MutexLock lock(&mu_);
    bulk_writing_ = false;
    bulk_current_.frame.Clear();
    if (!ok) {
      CloseLocked(absl::UnavailableError("the client's Bulk stream broke"));
      bulk_queue_.clear();
    }
    WriteBulkLocked();
    if (bulk_stalled_ && bulk_queue_.size() <= kBulkQueue / 2) {
      bulk_stalled_ = false;
      receiver = receiver_;
    }
  }
  if (receiver != nullptr) receiver->OnBulkRoom();
  MutexLock lock(&mu_);
  FinishLocked();
}

void StreamLink::OnBulkDone() {
  {
    MutexLock lock(&mu_);
    bulk_ = nullptr;
  }
  ReportIfOver();
}

bool StreamLink::OverLocked() const {
  return control_ == nullptr && bulk_ == nullptr;
}

void StreamLink::ReportIfOver() {
  WorkerStreamReceiver* receiver;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    if (!OverLocked() || reported_) return;
    reported_ = true;
    receiver = receiver_;
    status = *close_status_;
  }
  cut_off_.Cancel();
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

BulkReactor* BulkReactor::Begin(grpc::CallbackServerContext* context,
                                HelloFunction hello, GoneFunction gone) {
  std::shared_ptr<BulkReactor> reactor(
      new BulkReactor(context, std::move(hello), std::move(gone)));
  BulkReactor* const raw = reactor.get();
  raw->hello_alarm_.Set(
      std::chrono::system_clock::now() + kBulkHelloTimeout,
      [weak = std::weak_ptr<BulkReactor>(reactor)](bool expired) {
        const std::shared_ptr<BulkReactor> self = weak.lock();
        if (!expired || self == nullptr) return;
        self->Refuse(MakeError(absl::StatusCode::kUnauthenticated,
                               "LEASE_UNKNOWN",
                               "no Control stream uses this lease"));
      });
  raw->self_ = std::move(reactor);
  raw->StartRead(&raw->frame_);
  return raw;
}

void BulkReactor::Refuse(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    if (refused_ || link_ != nullptr) return;
    refused_ = true;
  }
  Finish(ToGrpcStatus(status));
}

void BulkReactor::OnReadDone(bool ok) {
  std::shared_ptr<StreamLink> link;
  bool first;
  {
    MutexLock lock(&mu_);
    link = link_;
    first = !std::exchange(hello_seen_, true);
  }
  if (!ok) {
    // A client that is done with Bulk may go on with Control.
    if (link == nullptr) {
      Refuse(absl::CancelledError("no hello"));
    } else if (context_->IsCancelled()) {
      link->OnBulkLost();
    }
    return;
  }
  if (!first) {
    link->OnBulkFrame(&frame_);
  } else {
    const absl::InlinedVector<grpc::Slice, 32> slices = SlicesOf(frame_);
    absl::InlinedVector<absl::string_view, 32> pieces;
    for (const grpc::Slice& slice : slices) {
      pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                          slice.size());
    }
    const absl::StatusOr<BulkFrame> frame = ParseBulkFrame(pieces);
    if (!frame.ok() || !frame->hello.has_value() || frame->transfer_id != 0) {
      return Refuse(MakeError(absl::StatusCode::kInvalidArgument,
                              "PROTOCOL_VIOLATION",
                              "the first chunk must be a hello alone"));
    }
    frame_.Clear();
    // The link that takes the call reads on.
    return hello_(this, *frame->hello);
  }
  link->ReadBulkOn(this);
}

void BulkReactor::OnWriteDone(bool ok) {
  std::shared_ptr<StreamLink> link;
  {
    MutexLock lock(&mu_);
    link = link_;
  }
  link->OnBulkWritten(ok);
}

void BulkReactor::OnCancel() {
  std::shared_ptr<StreamLink> link;
  {
    MutexLock lock(&mu_);
    link = link_;
  }
  if (link != nullptr) {
    link->OnBulkLost();
  } else {
    Refuse(absl::CancelledError("cancelled"));
  }
}

void BulkReactor::OnDone() {
  gone_(this);
  std::shared_ptr<StreamLink> link;
  {
    MutexLock lock(&mu_);
    link = std::move(link_);
  }
  if (link != nullptr) link->OnBulkDone();
  self_.reset();  // May delete this.
}

}  // namespace djinn::worker
