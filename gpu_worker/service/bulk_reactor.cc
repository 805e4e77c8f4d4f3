#include "gpu_worker/service/bulk_reactor.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "common/base/error.h"
#include "common/log/log.h"
#include "common/net/grpc_status.h"
#include "gpu_worker/service/received_frame.h"
#include "gpu_worker/service/stream_link.h"

namespace djinn::worker {
namespace {

constexpr std::chrono::seconds kHelloTimeout{10};
// The most frames that wait before Send() says that there is no room.
constexpr size_t kBulkQueue = 4;

}  // namespace

BulkReactor* BulkReactor::Begin(grpc::CallbackServerContext* context,
                                CountedStream call, HelloFunction hello,
                                GoneFunction gone) {
  std::shared_ptr<BulkReactor> reactor(new BulkReactor(
      context, std::move(call), std::move(hello), std::move(gone)));
  BulkReactor* const raw = reactor.get();
  raw->hello_alarm_.Set(
      std::chrono::system_clock::now() + kHelloTimeout,
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

void BulkReactor::End(const grpc::Status& status) {
  Finish(call_.EndWithoutSizes(status));
}

std::shared_ptr<StreamLink> BulkReactor::link() {
  MutexLock lock(&mu_);
  return link_;
}

absl::Status BulkReactor::Join(std::shared_ptr<StreamLink> link) {
  MutexLock lock(&mu_);
  if (refused_) return absl::CancelledError("the call has ended");
  link_ = std::move(link);
  return absl::OkStatus();
}

void BulkReactor::Refuse(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    if (refused_ || link_ != nullptr) return;
    refused_ = true;
  }
  if (!absl::IsCancelled(status)) {
    log::Warning("Bulk call refused",
                 {{"peer", context_->peer()}, {"status", status}});
  }
  End(ToGrpcStatus(status));
}

void BulkReactor::OnReadDone(bool ok) {
  const std::shared_ptr<StreamLink> link = this->link();
  if (!ok) {
    // A client that is done with Bulk may go on with Control.
    if (link == nullptr) {
      Refuse(absl::CancelledError("no hello"));
    } else if (context_->IsCancelled()) {
      link->OnBulkLost();
    }
    return;
  }
  const ReceivedFrame frame(&frame_);
  if (link != nullptr) {
    link->OnBulkFrame(frame.parsed(), encrypted_);
    return link->ReadBulkOn(this);
  }
  if (!frame.parsed().ok() || !frame.parsed()->hello.has_value() ||
      frame.parsed()->transfer_id != 0) {
    return Refuse(MakeError(absl::StatusCode::kInvalidArgument,
                            "PROTOCOL_VIOLATION",
                            "the first chunk must be a hello alone"));
  }
  // The link that attaches the call reads the next frame.
  hello_(this, *frame.parsed()->hello);
}

void BulkReactor::OnWriteDone(bool ok) { link()->OnBulkWritten(this, ok); }

void BulkReactor::OnCancel() {
  const std::shared_ptr<StreamLink> link = this->link();
  if (link != nullptr) {
    link->OnBulkLost();
  } else {
    Refuse(absl::CancelledError("cancelled"));
  }
}

void BulkReactor::OnDone() {
  gone_(this);
  const std::shared_ptr<StreamLink> link = this->link();
  if (link != nullptr) link->OnBulkDone(this);
  self_.reset();  // May delete this.
}

BulkCalls::Call& BulkCalls::Of(const BulkReactor* bulk) {
  return **std::find_if(calls_.begin(), calls_.end(), [bulk](const auto& call) {
    return call->bulk == bulk;
  });
}

void BulkCalls::Add(BulkReactor* bulk) {
  seen_ = true;
  calls_.push_back(std::make_unique<Call>(Call{bulk, {}}));
  bulk->StartRead(&bulk->frame_);
  WriteNext();
}

void BulkCalls::Remove(const BulkReactor* bulk) {
  std::erase_if(calls_,
                [bulk](const auto& call) { return call->bulk == bulk; });
}

void BulkCalls::ReadOn(BulkReactor* bulk) {
  if (!Of(bulk).finished) bulk->StartRead(&bulk->frame_);
}

bool BulkCalls::Send(grpc::ByteBuffer frame) {
  queue_.push_back(std::move(frame));
  WriteNext();
  full_ = queue_.size() >= kBulkQueue;
  return !full_;
}

void BulkCalls::NoteWritten(const BulkReactor* bulk) {
  Call& call = Of(bulk);
  call.writing = false;
  call.frame.Clear();
}

void BulkCalls::WriteNext() {
  for (const auto& call : calls_) {
    if (queue_.empty()) return;
    if (call->writing || call->finished) continue;
    call->frame = std::move(queue_.front());
    queue_.pop_front();
    call->writing = true;
    call->bulk->StartWrite(&call->frame);
  }
}

bool BulkCalls::HasRoomAgain() {
  if (!full_ || queue_.size() > kBulkQueue / 2) return false;
  full_ = false;
  return true;
}

void BulkCalls::Finish(const grpc::Status& status) {
  if (!queue_.empty()) return;
  for (const auto& call : calls_) {
    if (call->finished || call->writing) continue;
    call->finished = true;
    call->bulk->End(status);
  }
}

void BulkCalls::CutOff() {
  for (const auto& call : calls_) call->bulk->context_->TryCancel();
}

}  // namespace djinn::worker
