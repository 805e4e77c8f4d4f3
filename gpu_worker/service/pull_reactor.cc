#include "gpu_worker/service/pull_reactor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/error.h"
#include "common/hash/crc32c.h"
#include "common/log/log.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "common/net/tls/tls.h"
#include "gpu_worker/pull/peer_call.h"

namespace djinn::worker {
namespace {

// Copies of larger chunks would take fresh pages of memory each time.
constexpr uint64_t kChunkBytes = 112 << 10;

absl::Status Recalled() {
  return MakeError(absl::StatusCode::kResourceExhausted, "SESSION_MEMORY",
                   "the storage was written or freed, and the session's limit "
                   "had no room to keep what was offered");
}

}  // namespace

PullReactor::PullReactor(grpc::CallbackServerContext* context,
                         CountedStream call, WorkerCore* core, SendOrder* order,
                         std::string session_id, UnprovenConnections* unproven)
    : call_(std::move(call)),
      core_(core),
      order_(order),
      unproven_(unproven),
      session_id_(std::move(session_id)),
      encrypted_(IsEncrypted(*context)),
      context_(context) {}

PullReactor* PullReactor::Begin(grpc::CallbackServerContext* context,
                                CountedStream call,
                                const v1::PullRequest& request,
                                WorkerCore* core, SendOrder* order,
                                const std::string& socket,
                                UnprovenConnections* unproven) {
  if (!socket.empty()) context->AddInitialMetadata(kPullSocketHeader, socket);
  std::shared_ptr<PullReactor> reactor(new PullReactor(
      context, std::move(call), core, order, request.session_id(), unproven));
  reactor->self_ = reactor;
  {
    MutexLock lock(&reactor->mu_);
    reactor->Watch();
  }
  core->Pull(request, reactor);
  return reactor.get();
}

void PullReactor::StillWaiting() {
  {
    MutexLock lock(&mu_);
    says_waiting_ = true;
  }
  Pump();
}

void PullReactor::Give(std::shared_ptr<const OfferedBytes> bytes) {
  SendUrgency urgency = core_->UrgencyOf(session_id_);
  {
    MutexLock lock(&mu_);
    if (context_ == nullptr || finished_) return;
    NoteProven(*context_, unproven_);
    urgency.session_id = session_id_;
    urgency.rank = bytes->rank;
    sender_ = order_->Begin(std::move(urgency));
    offered_ = std::move(bytes);
  }
  Pump();
}

void PullReactor::Refuse(absl::Status why) {
  {
    MutexLock lock(&mu_);
    refusal_ = std::move(why);
  }
  Pump();
}

void PullReactor::Pump() {
  absl::Status status;
  bool write = false;
  {
    std::shared_ptr<const OfferedBytes> gone;  // Released without the lock.
    MutexLock lock(&mu_);
    if (writing_ || finished_ || context_ == nullptr) return;
    response_.Clear();
    if (cancelled_) {
      status = absl::CancelledError("the other worker gave up");
      finished_ = true;
    } else if (!refusal_.ok()) {
      // Callers are not authenticated, so they must not be able to fill the
      // log.
      log::Debug("pull refused",
                 {{"peer", context_->peer()}, {"status", refusal_}});
      status = refusal_;
      finished_ = true;
    } else if (offered_ != nullptr && offered_->recalled) {
      status = Recalled();
      finished_ = true;
    } else if (offered_ != nullptr && offered_->poison != nullptr &&
               sent_ == 0) {
      *response_.mutable_poisoned() = *offered_->poison;
      gone = std::move(offered_);
      sent_ = 1;
      write = true;
    } else if (offered_ != nullptr && sent_ < offered_->size_bytes) {
      if (MaySend()) {
        status = FillChunk();
        write = status.ok();
        finished_ = !write;
        // The chunk is a copy. The offered bytes are released before the peer
        // can have all of them, so that their memory is free here when the
        // peer says that it has them.
        if (sent_ == offered_->size_bytes) gone = std::move(offered_);
      } else if (std::exchange(says_waiting_, false)) {
        response_.mutable_waiting();
        write = true;
      } else {
        return;
      }
    } else if (offered_ != nullptr || sent_ > 0) {
      finished_ = true;  // all bytes are sent
    } else if (std::exchange(says_waiting_, false)) {
      response_.mutable_waiting();
      write = true;
    } else {
      return;
    }
    writing_ = write;
    if (finished_) {
      if (offered_ != nullptr) gone = std::move(offered_);
      if (sender_ != 0) order_->End(std::exchange(sender_, 0));
    }
  }
  if (write) {
    StartWrite(&response_);
  } else {
    Finish(call_.EndWithoutSizes(ToGrpcStatus(status)));
  }
}

bool PullReactor::MaySend() {
  held_ = nullptr;
  if (order_->MaySend(sender_)) return true;
  held_ = std::make_unique<grpc::Alarm>();
  held_->Set(std::chrono::system_clock::now() +
                 absl::ToChronoMilliseconds(SendOrder::kAskAgain),
             [weak = weak_from_this()](bool expired) {
               const std::shared_ptr<PullReactor> self = weak.lock();
               if (expired && self != nullptr) self->Pump();
             });
  return false;
}

absl::Status PullReactor::FillChunk() {
  const absl::StatusOr<SharedBytes> host =
      core_->device()->HostBytes(offered_->buffer);
  if (!host.ok()) return host.status();
  const absl::string_view bytes = host->bytes.substr(sent_, kChunkBytes);
  v1::PullChunk* const chunk = response_.mutable_chunk();
  chunk->set_offset(sent_);
  if (!encrypted_) chunk->set_crc32c(Crc32c(bytes));
  chunk->set_payload(bytes.data(), bytes.size());
  sent_ += bytes.size();
  return absl::OkStatus();
}

void PullReactor::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) cancelled_ = true;
  }
  Pump();
}

void PullReactor::OnCancel() {
  core_->AbandonPull(this);
  std::shared_ptr<const OfferedBytes> gone;  // Released without the lock.
  {
    MutexLock lock(&mu_);
    cancelled_ = true;
    gone = std::move(offered_);
  }
  Pump();
}

void PullReactor::OnDone() {
  std::shared_ptr<const OfferedBytes> gone;
  {
    MutexLock lock(&mu_);
    context_ = nullptr;
    gone = std::move(offered_);
    alarm_->Cancel();
    if (held_ != nullptr) held_->Cancel();
    if (sender_ != 0) order_->End(std::exchange(sender_, 0));
  }
  self_.reset();  // May delete this.
}

void PullReactor::Watch() {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(std::chrono::system_clock::now() +
                  absl::ToChronoMilliseconds(core_->transfer_idle_timeout()),
              [weak = weak_from_this()](bool expired) {
                const std::shared_ptr<PullReactor> self = weak.lock();
                if (expired && self != nullptr) self->OnAlarm();
              });
}

void PullReactor::OnAlarm() {
  std::shared_ptr<const OfferedBytes> gone;  // Released without the lock.
  if (Look(&gone)) Pump();
}

bool PullReactor::Look(std::shared_ptr<const OfferedBytes>* gone) {
  MutexLock lock(&mu_);
  if (context_ == nullptr || finished_) return false;
  const bool recalled = offered_ != nullptr && offered_->recalled;
  if (writing_ && was_writing_ && (recalled || seen_ == sent_)) {
    log::Warning(recalled ? "pull given up: the session has no room"
                          : "pull given up: nothing was taken",
                 {{"peer", context_->peer()}});
    cancelled_ = true;
    *gone = std::move(offered_);
    context_->TryCancel();
  }
  // Other values are sent first; the caller learns that this one will follow.
  const bool held = !writing_ && offered_ != nullptr && seen_ == sent_;
  if (held) says_waiting_ = true;
  was_writing_ = writing_;
  seen_ = sent_;
  Watch();
  return held;
}

}  // namespace djinn::worker
