// Shuts a device down: flushes, cancels, and reports what is lost.
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn::replica {
namespace {

// Time that threads may take to leave a stream that has ended. Join() has
// waited for those that use it for long.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(1);

bool IsUpload(const v1::Install& install) {
  return !install.has_seed() && !install.has_pull() && !install.has_copy();
}

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
        // No tensor of the program is a kept copy.
        if (message.install().has_copy()) break;
        uploads += IsUpload(message.install());
        written.insert(message.install().storage());
        break;
      case v1::Ordered::kCreateStorage:
        written.insert(message.create_storage().storage());
        break;
      default:
        break;
    }
  }

  void Add(const Lineage::Node& node) {
    if (node.executed || node.payload == nullptr) return;
    const KeptMessage& kept = *KeptOf(node);
    if (kept.run != nullptr) {
      ++runs;
    } else if (kept.request->ordered().has_install()) {
      const v1::Install& install = kept.request->ordered().install();
      if (install.has_copy()) return;
      uploads += IsUpload(install);
    }
    for (const Lineage::Use& use : node.uses) {
      if (use.writes > 0) written.insert(use.storage);
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
      for (const RunBinding& binding : replay->bindings) {
        if (binding.writes > 0) written.insert(binding.id);
      }
      return;
    }
    if (std::holds_alternative<ReadWork>(work.action) ||
        std::holds_alternative<OfferWork>(work.action) ||
        std::holds_alternative<CopyWork>(work.action) ||
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

void BeginClose(State& r) {
  ConnectionState& c = r.connection;
  r.recorder.Close(DeviceEnd::Closed());
  // Queued before the sender sees that the device closes.
  r.recorder.SealAll();
  {
    MutexLock lock(&c.mu);
    c.end.closing = true;
    c.window_changed.SignalAll();
    c.connection_changed.SignalAll();
  }
  r.sender.wakeup.Set();
}

bool Flush(State& r, const Deadline& deadline) {
  ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  // A device that has lost its worker and waits for nothing needs no other one.
  const auto finished = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(c.mu) {
    if (!c.recovery.due) return c.end.drained && c.log.empty();
    return !c.lineage->has_unexecuted() && r.queue.empty() && !r.queue.held();
  };
  while (c.end.failure.ok() && !finished()) {
    if (deadline.passed()) return false;
    WaitUntil(&c.progress_changed, &c.mu, deadline);
  }
  return true;
}

void Cancel(State& r) {
  ConnectionState& c = r.connection;
  {
    MutexLock lock(&c.mu);
    c.end.cancelling = true;
    c.connection_changed.SignalAll();
  }
  r.sender.wakeup.Set();
}

void AwaitCancelled(State& r, const Deadline& deadline) {
  ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  // No worker answers while there is no connection.
  while (c.end.failure.ok() &&
         (r.queue.held() || (r.receiver.connected() && !c.end.cancelled)) &&
         !deadline.passed()) {
    WaitUntil(&c.progress_changed, &c.mu, deadline);
  }
}

std::string DescribeLoss(State& r) {
  ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  Loss loss;
  if (c.recovery.due) {
    // The log may be that of a worker that has nothing yet.
    for (const Lineage::Node& node : c.lineage->nodes()) loss.Add(node);
  } else {
    for (const MessageLog::Entry& entry : c.log.entries()) loss.Add(entry);
  }
  r.queue.Visit([&](Work& work) { loss.Add(work); });
  if (loss.written.empty() && loss.runs == 0) return "";
  return absl::StrCat("device ", r.index, ": ", Count(loss.runs, "run"),
                      " and ", Count(loss.uploads, "upload"),
                      " were not executed; writes to ",
                      Count(loss.written.size(), "storage"), " are lost");
}

absl::Status FailureThatLostWork(const State& r) {
  const ConnectionState& c = r.connection;
  MutexLock lock(&c.mu);
  return c.end.lost_work ? c.end.failure : absl::OkStatus();
}

void Stop(State& r) {
  ConnectionState& c = r.connection;
  ClientStream* stream = nullptr;
  bool clean = false;
  ReadTable::Callbacks callbacks;
  r.recorder.Close(DeviceEnd::Closed());
  {
    MutexLock lock(&c.mu);
    c.end.stopped = true;
    clean = c.end.failure.ok() &&
            (c.end.cancelled ||
             (c.end.drained && c.log.empty() && !c.recovery.due));
    if (c.end.failure.ok()) {
      c.end.failure = c.end.failing.ok() ? DeviceEnd::Closed() : c.end.failing;
    }
    WakeAll(c);
    r.answers.Fail(c.end.failure);
    callbacks = r.answers.TakeDue();
    stream = r.receiver.Enter();
  }
  Notify(callbacks);
  if (stream != nullptr) {
    stream->Close(clean ? absl::OkStatus()
                        : absl::CancelledError("the session was closed"));
  }
  r.receiver.Leave();
  r.sender.wakeup.Set();
}

void Join(State& r, const Deadline& deadline) {
  ConnectionState& c = r.connection;
  if (r.sender.thread == nullptr) return;
  r.sender.thread->Join();
  r.sender.thread.reset();
  EndUploads(r);
  r.sender.dead.Close();
  ClientStream* stubborn = nullptr;
  {
    MutexLock lock(&c.mu);
    while (r.receiver.stream() != nullptr && !c.stream.closed &&
           !deadline.passed()) {
      WaitUntil(&c.connection_changed, &c.mu, deadline);
    }
    if (!c.stream.closed) stubborn = r.receiver.stream();
  }
  if (stubborn != nullptr) {
    // The worker did not follow a clean end.
    stubborn->Close(absl::CancelledError("the session was closed"));
  }
  r.receiver.AwaitNoUsers(deadline);
}

void Disconnect(State& r) {
  std::unique_ptr<ClientStream> stream;
  const Deadline deadline(kLeaveTimeout, r.context->options.clock);
  if (r.receiver.End(deadline, &stream)) return;
  // A transport that keeps a caller for so long is broken, and a leak is safer.
  log::Error("a transfer did not leave its stream", {{"device", r.index}});
  r.receiver.Leak();
}

}  // namespace djinn::replica
