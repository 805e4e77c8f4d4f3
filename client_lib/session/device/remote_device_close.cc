// Shuts a device down: flushes, cancels, and reports what is lost.
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Time that the destructor waits for the stream.
constexpr absl::Duration kStreamEndTimeout = absl::Seconds(5);

// Counts the effects that unfinished work would have had.
struct Loss {
  uint64_t runs = 0;
  uint64_t uploads = 0;
  absl::flat_hash_set<uint64_t> written;  // storages

  void Add(const MessageLog::Entry& entry) {
    const v1::Ordered& message = entry.message->ordered();
    written.insert(entry.written.begin(), entry.written.end());
    switch (message.action_case()) {
      case v1::Ordered::kRun:
        ++runs;
        for (const v1::Binding& binding : message.run().bindings()) {
          if (binding.writes() > 0) written.insert(binding.storage());
        }
        break;
      case v1::Ordered::kInstall:
        if (!message.install().has_seed() && !message.install().has_pull()) {
          ++uploads;
        }
        written.insert(message.install().storage());
        break;
      case v1::Ordered::kCreateStorage:
        written.insert(message.create_storage().storage());
        break;
      default:
        break;
    }
  }

  void Add(const Work& work) {
    if (const auto* run = std::get_if<RunWork>(&work.action)) {
      ++runs;
      for (const Touch& touch : run->segment->touches()) {
        if (ChangesVersion(touch.access)) written.insert(touch.storage->id());
      }
      return;
    }
    if (const auto* replay = std::get_if<ReplayWork>(&work.action)) {
      ++runs;
      for (const RunEncoder::Binding& binding : replay->bindings) {
        if (binding.writes > 0) written.insert(binding.id);
      }
      return;
    }
    if (std::holds_alternative<ReadWork>(work.action) ||
        std::holds_alternative<OfferWork>(work.action) ||
        std::holds_alternative<ProfileWork>(work.action) ||
        std::holds_alternative<MeterWork>(work.action) ||
        std::holds_alternative<ModelWork>(work.action)) {
      return;
    }
    if (std::holds_alternative<InstallWork>(work.action)) ++uploads;
    written.insert(work.storage->id());
  }
};

std::string Count(uint64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

RemoteDevice::~RemoteDevice() {
  if (IsForkedChild()) {
    // A forked child does not have the threads, and what they held is in an
    // unknown state.
    (void)sender_.release();
    return;
  }
  Stop();
  Join(Deadline(kStreamEndTimeout, context_->options.clock));
  Disconnect();
}

void RemoteDevice::BeginClose() {
  recorder_.Close(DeviceEnd::Closed());
  // Queued before the sender sees that the device closes.
  recorder_.SealAll();
  {
    MutexLock lock(&mu_);
    end_.closing = true;
    window_changed_.SignalAll();
    connection_changed_.SignalAll();
  }
  wakeup_.Set();
}

bool RemoteDevice::Flush(const Deadline& deadline) {
  MutexLock lock(&mu_);
  while (end_.failure.ok() && !(end_.drained && log_.empty())) {
    if (deadline.passed()) return false;
    WaitUntil(&progress_changed_, &mu_, deadline);
  }
  return true;
}

void RemoteDevice::Cancel() {
  {
    MutexLock lock(&mu_);
    end_.cancelling = true;
    connection_changed_.SignalAll();
  }
  wakeup_.Set();
}

void RemoteDevice::AwaitCancelled(const Deadline& deadline) {
  MutexLock lock(&mu_);
  // No worker answers while there is no connection.
  while (end_.failure.ok() &&
         (queue_.held() || (receiver_.connected() && !end_.cancelled)) &&
         !deadline.passed()) {
    WaitUntil(&progress_changed_, &mu_, deadline);
  }
}

std::string RemoteDevice::DescribeLoss() {
  MutexLock lock(&mu_);
  Loss loss;
  for (const MessageLog::Entry& entry : log_.entries()) {
    loss.Add(entry);
  }
  queue_.Visit([&](Work& work) { loss.Add(work); });
  if (loss.written.empty() && loss.runs == 0) return "";
  return absl::StrCat("device ", index_, ": ", Count(loss.runs, "run"), " and ",
                      Count(loss.uploads, "upload"),
                      " were not executed; writes to ",
                      Count(loss.written.size(), "storage"), " are lost");
}

absl::Status RemoteDevice::Failure() const {
  MutexLock lock(&mu_);
  return end_.lost_work ? end_.failure : absl::OkStatus();
}

void RemoteDevice::Stop() {
  ClientStream* stream = nullptr;
  bool clean = false;
  ReadTable::Callbacks callbacks;
  recorder_.Close(DeviceEnd::Closed());
  {
    MutexLock lock(&mu_);
    end_.stopped = true;
    clean =
        end_.failure.ok() && (end_.cancelled || (end_.drained && log_.empty()));
    if (end_.failure.ok()) end_.failure = DeviceEnd::Closed();
    WakeAll();
    callbacks = answers_.Fail(end_.failure);
    stream = receiver_.Enter();
  }
  Notify(callbacks);
  if (stream != nullptr) {
    stream->Close(clean ? absl::OkStatus()
                        : absl::CancelledError("the session was closed"));
  }
  receiver_.Leave();
  wakeup_.Set();
}

void RemoteDevice::Join(const Deadline& deadline) {
  if (sender_ == nullptr) return;
  sender_->Join();
  sender_.reset();
  dead_.Close();
  ClientStream* stubborn = nullptr;
  {
    MutexLock lock(&mu_);
    while (receiver_.stream() != nullptr && !link_.closed &&
           !deadline.passed()) {
      WaitUntil(&connection_changed_, &mu_, deadline);
    }
    if (!link_.closed) stubborn = receiver_.stream();
  }
  if (stubborn != nullptr) {
    // The worker did not follow a clean end.
    stubborn->Close(absl::CancelledError("the session was closed"));
  }
  receiver_.AwaitNoUsers(deadline);
}

void RemoteDevice::Disconnect() {
  std::unique_ptr<ClientStream> stream;
  const Deadline now(absl::ZeroDuration(), context_->options.clock);
  if (receiver_.End(now, &stream)) return;
  // A transport that keeps a caller for so long is broken, and a leak is safer.
  log::Error("a transfer did not leave its stream", {{"device", index_}});
  receiver_.Leak();
}

}  // namespace djinn
