#include "gpu_worker/supervisor/supervision_link.h"

#include <poll.h>

#include <atomic>
#include <utility>

#include "common/log/log.h"

namespace djinn::worker {

class SupervisionLink::Stream : public RegistryStream {
 public:
  Stream(SupervisionLink* link, Descriptor wake)
      : link_(link), wake_(std::move(wake)) {}

  bool Write(const v1::WorkerState& state) override {
    v1::FromExecutor message;
    *message.mutable_report() = state;
    if (cancelled_ || !link_->Write(message)) return false;
    if (state.applied_revision() == 0) return true;
    MutexLock lock(&link_->mu_);
    link_->applied_ = true;
    link_->changed_.SignalAll();
    return true;
  }
  bool Read(v1::DesiredState* desired) override {
    std::optional<v1::DesiredState> next = link_->Next(this);
    if (!next.has_value()) return false;
    *desired = *std::move(next);
    return true;
  }
  void Cancel() override {
    cancelled_ = true;
    if (wake_.valid()) RaiseEvent(wake_.get());
  }
  absl::Status Finish() override {
    MutexLock lock(&link_->mu_);
    return link_->ended_ ? absl::UnavailableError("the supervisor is gone")
                         : absl::OkStatus();
  }

  bool NextAtOnce() const override {
    MutexLock lock(&link_->mu_);
    return !link_->ended_;
  }

  int wake() const { return wake_.get(); }
  bool cancelled() const { return cancelled_; }
  // Whether a message was read. The reading thread owns it.
  bool begun = false;

 private:
  SupervisionLink* const link_;
  const Descriptor wake_;
  std::atomic<bool> cancelled_{false};
};

SupervisionLink::SupervisionLink(Descriptor socket)
    : socket_(std::move(socket)) {}

absl::StatusOr<v1::ExecutorSetup> SupervisionLink::ReadSetup() {
  v1::ToExecutor message;
  for (;;) {
    const absl::Status taken = reader_.Take(&message);
    if (taken.ok()) break;
    if (!absl::IsNotFound(taken)) return taken;
    if (!Await(nullptr)) return absl::UnavailableError("no supervisor");
  }
  if (!message.has_setup()) return absl::InternalError("no setup");
  return message.setup();
}

bool SupervisionLink::Await(Stream* stream) {
  pollfd watched[] = {{socket_.get(), POLLIN, 0},
                      {stream == nullptr ? -1 : stream->wake(), POLLIN, 0}};
  poll(watched, 2, -1);
  if (stream != nullptr && stream->cancelled()) return false;
  if (watched[0].revents == 0) return true;
  const absl::Status filled = reader_.Fill(socket_.get());
  if (filled.ok() || absl::IsUnavailable(filled)) return true;
  End();
  return false;
}

std::optional<v1::DesiredState> SupervisionLink::Next(Stream* stream) {
  for (;;) {
    if (stream->cancelled()) return std::nullopt;
    if (next_.has_value()) {
      // Revision 1 is for the next stream.
      if (stream->begun && next_->revision() == 1) return std::nullopt;
      stream->begun = true;
      return std::exchange(next_, std::nullopt);
    }
    v1::ToExecutor message;
    const absl::Status taken = reader_.Take(&message);
    if (taken.ok() && message.has_tls()) {
      if (take_tls_ != nullptr) take_tls_(message.tls());
    } else if (taken.ok() && message.has_serving()) {
      MutexLock lock(&mu_);
      serving_ = message.serving();
      changed_.SignalAll();
    } else if (taken.ok()) {
      next_ = std::move(*message.mutable_desired());
    } else if (!absl::IsNotFound(taken)) {
      log::Error("the supervisor's message is broken", {{"error", taken}});
      End();
      return std::nullopt;
    } else if (!Await(stream)) {
      return std::nullopt;
    }
  }
}

bool SupervisionLink::Write(const v1::FromExecutor& message) {
  std::string frame = EncodeFrame(message);
  MutexLock lock(&writing_);
  absl::Status written;
  do {
    // The socket blocks, so only a signal makes it unavailable.
    written = WriteSome(socket_.get(), &frame);
  } while (absl::IsUnavailable(written));
  if (!written.ok()) End();
  return written.ok();
}

void SupervisionLink::Send(const v1::FromExecutor& message) { Write(message); }

std::unique_ptr<RegistryStream> SupervisionLink::Open() {
  absl::StatusOr<Descriptor> wake = MakeEvent();
  auto stream = std::make_unique<Stream>(
      this, wake.ok() ? *std::move(wake) : Descriptor());
  MutexLock lock(&mu_);
  if (ended_) stream->Cancel();
  return stream;
}

void SupervisionLink::End() {
  MutexLock lock(&mu_);
  ended_ = true;
  changed_.SignalAll();
}

bool SupervisionLink::AwaitOrders() {
  MutexLock lock(&mu_);
  while (!applied_ && !ended_) changed_.Wait(&mu_);
  return !ended_;
}

bool SupervisionLink::AwaitEnd(absl::Duration patience, bool* serving) {
  MutexLock lock(&mu_);
  if (!ended_ && serving_ == *serving) {
    changed_.WaitWithTimeout(&mu_, patience);
  }
  *serving = serving_;
  return ended_;
}

}  // namespace djinn::worker
