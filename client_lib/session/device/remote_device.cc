#include "client_lib/session/device/remote_device.h"

#include <algorithm>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/model/call_node.h"
#include "client_lib/session/model/fork_guard.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Returns the first id of the replica's storages and transfers. Each replica
// counts by itself, so that its worker sees every number.
uint64_t FirstId(const ReplicaRole& role) {
  const int device = role.member << 8 | role.index;
  return (static_cast<uint64_t>(device) << 48) + 1;
}

// Returns the storages of the call's unknown results, in order.
std::vector<StoragePtr> UnknownResults(Call* call) {
  const srg::Node node = NodeOf(*call);
  std::vector<StoragePtr> storages;
  for (const srg::Result& result : node.results) {
    if (const auto* unknown = std::get_if<srg::UnknownResult>(&result)) {
      storages.push_back(call->touches()[unknown->slot].storage);
    }
  }
  return storages;
}

}  // namespace

RemoteDevice::RemoteDevice(ReplicaRole role,
                           std::shared_ptr<SessionContext> context)
    : role_(std::move(role)),
      index_(role_.index),
      context_(std::move(context)),
      recorder_(role_.owner, &queue_, this, FirstId(role_)),
      encoder_(index_, context_, &queue_, &dead_, role_.on_repeat,
               FirstId(role_)),
      answers_(&context_->options, &receiver_),
      reader_(index_, context_.get(), &recorder_, &answers_, this),
      uploader_(&context_->options, role_.used_bytes, &recorder_, &answers_,
                this, &progress_) {
  sender_ = context_->options.threads->Start([this] { SenderLoop(); });
}

void RemoteDevice::MarkDead(RemoteStorage* storage) {
  if (IsForkedChild() || !dead_.Add(storage)) return;
  free_due_.store(true, std::memory_order_relaxed);
  wakeup_.Set();
}

absl::Status RemoteDevice::Record(uint32_t lane, Call* call) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return AfterForkError();
  if (ABSL_PREDICT_FALSE(call->unknown_results() != 0)) {
    return MakeError(absl::StatusCode::kInternal, "UNKNOWN_RESULT",
                     "a call with unknown results must be waited for");
  }
  DJINN_ASSIGN_OR_RETURN(const CallRecorder::Due due,
                         recorder_.Record(lane, call));
  if (ABSL_PREDICT_TRUE(due == CallRecorder::Due::kNothing)) {
    return absl::OkStatus();
  }
  if (due == CallRecorder::Due::kSend) {
    SendNow();
  } else {
    wakeup_.Set();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ResultMetadata>> RemoteDevice::RecordAndWait(
    uint32_t lane, Call* call) {
  if (IsForkedChild()) return AfterForkError();
  if (call->unknown_results() == 0) {
    return MakeError(absl::StatusCode::kInternal, "UNKNOWN_RESULT",
                     "the call has no unknown result to wait for");
  }
  const std::vector<StoragePtr> storages = UnknownResults(call);
  const auto wait = std::make_shared<MetadataWait>();
  wait->expected = storages.size();
  DJINN_RETURN_IF_ERROR(recorder_.RecordAndWait(lane, call, wait));
  SendNow();
  {
    MutexLock lock(&answers_.mu);
    DJINN_RETURN_IF_ERROR(
        answers_.Await(wait.get(), [&] { return wait->done; }));
  }
  if (!wait->error.ok()) {
    context_->root_errors.AddReported(index_, wait->error);
    return wait->error;
  }
  for (size_t i = 0; i < storages.size(); ++i) {
    storages[i]->set_size_bytes(wait->results[i].storage_bytes);
  }
  return std::move(wait->results);
}

absl::Status RemoteDevice::Seed(uint32_t lane, RemoteStorage* generator,
                                uint64_t seed) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(recorder_.Write(lane, generator, SeedWork{0, seed},
                                        /*needs_lease=*/false));
  wakeup_.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::Resize(uint32_t lane, RemoteStorage* storage,
                                  uint64_t size_bytes) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(recorder_.Resize(lane, storage, size_bytes));
  wakeup_.Set();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoragePtr>> RemoteDevice::Replay(
    uint32_t lane, const std::shared_ptr<const Recording>& recording,
    absl::Span<RemoteStorage* const> given) {
  if (IsForkedChild()) return AfterForkError();
  std::vector<StoragePtr> outputs;
  DJINN_RETURN_IF_ERROR(recorder_.Replay(lane, recording, given, &outputs));
  SendNow();
  return outputs;
}

absl::Status RemoteDevice::ReplayShare(uint32_t lane,
                                       const ShareOfRecording& share,
                                       const ShareBinding& binding) {
  DJINN_RETURN_IF_ERROR(recorder_.ReplayShare(lane, share, binding));
  wakeup_.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::CatchUp() {
  {
    MutexLock lock(&mu_);
    if (!end_.usable()) return end_.Reason();
  }
  recorder_.SealAll();
  if (!queue_.empty()) queue_.NeedLease();
  const uint64_t target = queue_.pushed();
  SendNow();
  {
    MutexLock lock(&mu_);
    const Deadline deadline(context_->options.operation_timeout,
                            context_->options.clock);
    while (works_done_ < target) {
      if (!end_.failure.ok()) return end_.failure;
      if (deadline.passed()) {
        return MakeError(absl::StatusCode::kDeadlineExceeded,
                         "OPERATION_TIMEOUT", "the worker has not caught up");
      }
      WaitOrReceive(
          &progress_changed_,
          [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
            return works_done_ >= target;
          },
          deadline);
    }
  }
  return absl::OkStatus();
}

absl::Status RemoteDevice::Upload(uint32_t lane, RemoteStorage* storage,
                                  SharedBytes source) {
  return uploader_.Upload(lane, storage, std::move(source), [this] {
    MutexLock lock(&mu_);
    // A multi-worker device tries its workers until one has room. The question
    // costs less than the copies of a message if the worker is near. During a
    // migration the room on the other worker is unknown.
    return !stays_ && !link_.near && migration_ == nullptr;
  });
}

absl::Status RemoteDevice::Read(uint32_t lane, RemoteStorage* storage,
                                const srg::TensorView& view, void* destination,
                                uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<ReadWait> wait,
                         BeginRead(lane, storage, view, destination, bytes));
  return wait == nullptr ? absl::OkStatus()
                         : FinishRead(wait.get(), destination);
}

uint64_t RemoteDevice::VersionOf(const RemoteStorage& storage) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return 0;
  return recorder_.VersionOf(storage);
}

HostValuePtr RemoteDevice::FindHostValue(const StorageAt& storage) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return nullptr;
  return recorder_.FindHostValue(storage);
}

void RemoteDevice::KeepHostValue(const StorageAt& written,
                                 absl::Span<const StorageAt> operands,
                                 HostValuePtr value, bool readable) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return;
  recorder_.KeepHostValue(written, operands, std::move(value), readable);
}

bool RemoteDevice::HasLease() const {
  MutexLock lock(&mu_);
  return !lease_.lease_id().empty();
}

bool RemoteDevice::IsBorn(const RemoteStorage& storage) const {
  return recorder_.IsBorn(storage);
}

void RemoteDevice::StayAtWorker() {
  MutexLock lock(&mu_);
  stays_ = true;
}

absl::StatusOr<DevicePlacement> RemoteDevice::Placement() {
  if (IsForkedChild()) return AfterForkError();
  queue_.NeedLease();
  wakeup_.Set();
  MutexLock lock(&mu_);
  if (!end_.usable()) return end_.Reason();
  const Deadline deadline(context_->options.connect_timeout * 2,
                          context_->options.clock);
  while (!welcomed_) {
    if (!end_.failure.ok()) return end_.failure;
    if (deadline.passed()) {
      return MakeError(absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
                       "no worker was reached");
    }
    WaitUntil(&connection_changed_, &mu_, deadline);
  }
  DevicePlacement placement = placement_;
  placement.memory_bytes = limits_.memory_bytes();
  placement.generator_bytes = facts_.generator_bytes;
  return placement;
}

void RemoteDevice::AddStatistics(Statistics* sum) const {
  recorder_.AddStatistics(sum);
  MutexLock lock(&answers_.mu);
  answers_.table.AddStatistics(sum);
  sum->uploads_sent += answers_.statistics.uploads_sent;
  sum->uploads_already_held += answers_.statistics.uploads_already_held;
  sum->device_copies += answers_.statistics.device_copies;
  sum->bytes_up += answers_.statistics.bytes_up;
  sum->bytes_down += answers_.statistics.bytes_down;
  sum->resumes += answers_.statistics.resumes;
  sum->bytes_resent += answers_.statistics.bytes_resent;
  sum->needs_answered += answers_.statistics.needs_answered;
}

absl::Status RemoteDevice::AwaitWindow() {
  const Deadline deadline(context_->options.operation_timeout,
                          context_->options.clock);
  queue_.NeedLease();
  wakeup_.Set();
  MutexLock lock(&mu_);
  ++window_waiters_;
  while (end_.usable() && queue_.full() && !deadline.passed()) {
    WaitOrReceive(
        &window_changed_,
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return !end_.usable() || !queue_.full();
        },
        deadline);
  }
  --window_waiters_;
  if (!end_.usable() || !queue_.full()) return absl::OkStatus();
  const WorkQueue::Size queued = queue_.size();
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, "WINDOW_FULL",
      absl::StrCat("no room in the window for ",
                   absl::FormatDuration(context_->options.operation_timeout),
                   ": ", queued.works + log_.outstanding(), " messages (",
                   queued.bytes + log_.outstanding_bytes(),
                   " bytes) are unfinished; the worker allows ",
                   log_.window_messages(), " (", log_.window_bytes(),
                   ") in all so far"));
}

absl::Status RemoteDevice::QueueHere(
    absl::FunctionRef<absl::Status(CallRecorder::Admit)> queue,
    absl::FunctionRef<void()> fill) {
  for (;;) {
    {
      MutexLock lock(&mu_);
      DJINN_RETURN_IF_ERROR(AwaitWelcome());
      DJINN_RETURN_IF_ERROR(AwaitMigration());
    }
    bool queued = false;
    DJINN_RETURN_IF_ERROR(queue([&](absl::FunctionRef<void()> push) {
      MutexLock lock(&mu_);
      // The work is meant for this worker.
      if (migration_ != nullptr) return;
      fill();
      push();
      queued = true;
    }));
    if (queued) return absl::OkStatus();
  }
}

void RemoteDevice::WaitOrReceive(CondVar* changed,
                                 absl::FunctionRef<bool()> done,
                                 const Deadline& deadline) {
  bool may_lead = false;
  {
    MutexLock lock(&answers_.mu);
    may_lead = answers_.may_lead();
  }
  receiver_.WaitOrReceive(
      &mu_, changed,
      [this, done]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return done() || !end_.failure.ok();
      },
      deadline, may_lead);
}

void RemoteDevice::Notify(const ReadTable::Callbacks& callbacks) {
  for (const auto& callback : callbacks) callback();
}

void RemoteDevice::WakeAll() {
  window_changed_.SignalAll();
  progress_changed_.SignalAll();
  connection_changed_.SignalAll();
}

}  // namespace djinn
