#include "client_lib/session/remote_device.h"

#include <algorithm>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/call_node.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/operator_table.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

// How long a thread receives before it looks around.
constexpr absl::Duration kAttendance = absl::Milliseconds(100);

// Of the member's storages and of its transfers: each counts for itself, so
// that its worker sees every number.
uint64_t FirstId(const RemoteDevice::Role& role) {
  const int device = role.member << 8 | role.index;
  return (static_cast<uint64_t>(device) << 48) + 1;
}

// Another number in every thread that lives.
uint64_t ThisThread() {
  thread_local const char mark = 0;
  return reinterpret_cast<uintptr_t>(&mark);
}

// The storages of the call's unknown results, in order.
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

RemoteDevice::RemoteDevice(Role role, std::shared_ptr<SessionContext> context)
    : role_(std::move(role)),
      index_(role_.index),
      context_(std::move(context)),
      next_transfer_id_(FirstId(role_)) {
  {
    MutexLock lock(&mu_);
    recorder_.NumberStoragesFrom(FirstId(role_));
  }
  sender_ = std::make_unique<std::thread>([this] { SenderLoop(); });
}

void RemoteDevice::MarkDead(RemoteStorage* storage) {
  if (IsForkedChild() || !dead_.Add(storage)) return;
  free_due_.store(true, std::memory_order_relaxed);
  wakeup_.Set();
}

absl::Status RemoteDevice::Record(uint32_t lane, Call* call, Caller caller) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return AfterForkError();
  if (ABSL_PREDICT_FALSE(call->unknown_results() != 0)) {
    return MakeError(absl::StatusCode::kInternal, "UNKNOWN_RESULT",
                     "a call with unknown results must be waited for");
  }
  SealedSegments sealed;
  bool foresees = false;
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(caller));
    DJINN_RETURN_IF_ERROR(recorder_.Check(call, role_.owner));
    if (ABSL_PREDICT_FALSE(!recordings_.empty())) {
      const auto recording = recordings_.find(lane);
      if (recording != recordings_.end()) {
        recording->second->Add(
            *call, [](const RemoteStorage* storage) { return storage->born_; });
      }
    }
    const Segment* const segment =
        recorder_.Record(lane, call, &sealed, ThisThread());
    ++statistics_.calls;
    const ReadPredictor::Prediction* const prediction =
        predictor_.OnCall(*segment);
    if (ABSL_PREDICT_TRUE(prediction == nullptr)) {
      if (ABSL_PREDICT_TRUE(sealed.empty())) return absl::OkStatus();
      QueueSegments(sealed);
    } else {
      Foresee(*segment, *prediction, &sealed);
      foresees = true;
    }
  }
  if (foresees) {
    SendNow();
  } else {
    wakeup_.Set();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ResultMetadata>> RemoteDevice::RecordAndWait(
    uint32_t lane, Call* call, Caller caller) {
  if (IsForkedChild()) return AfterForkError();
  if (call->unknown_results() == 0) {
    return MakeError(absl::StatusCode::kInternal, "UNKNOWN_RESULT",
                     "the call has no unknown result to wait for");
  }
  const std::vector<StoragePtr> storages = UnknownResults(call);
  const auto wait = std::make_shared<MetadataWait>();
  wait->expected = storages.size();
  SealedSegments sealed;
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(caller));
    DJINN_RETURN_IF_ERROR(recorder_.Check(call, role_.owner));
    RefuseRecording(
        lane, "DEPENDS_ON_DATA",
        absl::StrCat(
            "the shape of a result depends on data: ",
            OperatorTable::Global().Get(call->operator_id()).FullName()));
    recorder_.Record(lane, call, &sealed, ThisThread());
    recorder_.SealLane(lane, &sealed);
    // Of the segments sealed just now, the call's own is the last.
    sealed.back()->wants_metadata = true;
    ++statistics_.calls;
    ++statistics_.synchronous_calls;
    QueueSegments(sealed, wait);
  }
  SendNow();
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Await(wait.get(), [&] { return wait->done; }));
  }
  if (!wait->error.ok()) {
    context_->root_errors.AddReported(index_, wait->error);
    return wait->error;
  }
  for (size_t i = 0; i < storages.size(); ++i) {
    storages[i]->size_bytes_.store(wait->results[i].storage_bytes,
                                   std::memory_order_relaxed);
  }
  return std::move(wait->results);
}

absl::Status RemoteDevice::Seed(uint32_t lane, RemoteStorage* generator,
                                uint64_t seed, Caller caller) {
  if (IsForkedChild()) return AfterForkError();
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(caller));
    RefuseRecording(lane, "SEEDS",
                    "it seeds a generator, or is the first to draw from it");
    SealedSegments sealed;
    recorder_.SealUsers(generator, /*writers_only=*/false, &sealed);
    QueueSegments(sealed);
    Queue({lane, StoragePtr(generator), 0,
           SeedWork{recorder_.StampWrite(generator), seed}},
          /*needs_lease=*/false);
  }
  wakeup_.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::Resize(uint32_t lane, RemoteStorage* storage,
                                  uint64_t size_bytes, Caller caller) {
  if (IsForkedChild()) return AfterForkError();
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(caller));
    storage->size_bytes_.store(size_bytes, std::memory_order_relaxed);
    // Not born: it comes into being with its new size.
    if (!storage->born_) return absl::OkStatus();
    RefuseRecording(lane, "RESIZES", "it resizes a tensor");
    SealedSegments sealed;
    recorder_.SealUsers(storage, /*writers_only=*/false, &sealed);
    QueueSegments(sealed);
    Queue({lane, StoragePtr(storage), 0,
           CreateWork{recorder_.StampWrite(storage), size_bytes}},
          /*needs_lease=*/false);
  }
  wakeup_.Set();
  return absl::OkStatus();
}

absl::Status RemoteDevice::CatchUp() {
  uint64_t target = 0;
  {
    MutexLock lock(&mu_);
    if (!usable_) return Unusable();
    SealedSegments sealed;
    recorder_.SealAll(&sealed);
    QueueSegments(sealed);
    if (!queue_.empty()) lease_due_ = true;
    target = works_queued_;
  }
  SendNow();
  {
    MutexLock lock(&mu_);
    const Deadline deadline(context_->options.operation_timeout,
                            context_->options.clock);
    while (works_done_ < target) {
      if (!failure_.ok()) return failure_;
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

bool RemoteDevice::HasLease() const {
  MutexLock lock(&mu_);
  return !lease_.lease_id().empty();
}

bool RemoteDevice::IsBorn(const RemoteStorage& storage) const {
  MutexLock lock(&mu_);
  return storage.born_;
}

void RemoteDevice::BeginToSpan() {
  MutexLock lock(&mu_);
  spans_ = true;
  for (const auto& [lane, recorder] : recordings_) {
    recorder->Refuse(kSpansWorkers, "it uses a device that spans workers");
  }
}

absl::StatusOr<DevicePlacement> RemoteDevice::Placement() {
  if (IsForkedChild()) return AfterForkError();
  MutexLock lock(&mu_);
  if (!usable_) return Unusable();
  lease_due_ = true;
  wakeup_.Set();
  const Deadline deadline(context_->options.connect_timeout * 2,
                          context_->options.clock);
  while (!welcomed_) {
    if (!failure_.ok()) return failure_;
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
  MutexLock lock(&mu_);
  sum->calls += statistics_.calls;
  sum->synchronous_calls += statistics_.synchronous_calls;
  sum->runs += statistics_.runs;
  sum->structures_defined += statistics_.structures_defined;
  sum->plan_cache_hits += statistics_.plan_cache_hits;
  sum->reads += statistics_.reads;
  sum->uploads_inline += statistics_.uploads_inline;
  sum->uploads_sent += statistics_.uploads_sent;
  sum->uploads_already_held += statistics_.uploads_already_held;
  sum->reads_answered_here += statistics_.reads_answered_here;
  sum->device_copies += statistics_.device_copies;
  sum->bytes_up += statistics_.bytes_up;
  sum->bytes_down += statistics_.bytes_down;
  sum->resumes += statistics_.resumes;
  sum->bytes_resent += statistics_.bytes_resent;
  sum->needs_answered += statistics_.needs_answered;
}

absl::Status RemoteDevice::Enter(Caller caller) {
  if (ABSL_PREDICT_TRUE(usable_ && !WindowFull() &&
                        (!spans_ || caller == Caller::kOrdered))) {
    return absl::OkStatus();
  }
  return EnterSlow(caller);
}

absl::Status RemoteDevice::EnterSlow(Caller caller) {
  if (!usable_) return Unusable();
  const Deadline deadline(context_->options.operation_timeout,
                          context_->options.clock);
  lease_due_ = true;
  wakeup_.Set();
  ++window_waiters_;
  while (usable_ && WindowFull() && !deadline.passed()) {
    WaitOrReceive(
        &window_changed_,
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return !usable_ || !WindowFull();
        },
        deadline);
  }
  --window_waiters_;
  if (!usable_) return Unusable();
  if (spans_ && caller == Caller::kDirect) return BeganToSpan();
  if (!WindowFull()) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, "WINDOW_FULL",
      absl::StrCat("no room in the window for ",
                   absl::FormatDuration(context_->options.operation_timeout),
                   ": ", queue_.size() + log_.outstanding(), " messages (",
                   queued_bytes_ + log_.outstanding_bytes(),
                   " bytes) are unfinished; the worker allows ",
                   log_.window_messages(), " (", log_.window_bytes(),
                   ") in all so far"));
}

absl::Status RemoteDevice::BeganToSpan() {
  return MakeError(absl::StatusCode::kAborted, kBeganToSpan,
                   "the virtual device has another worker now");
}

bool RemoteDevice::IsBeganToSpan(const absl::Status& status) {
  return ABSL_PREDICT_FALSE(!status.ok()) && absl::IsAborted(status) &&
         ErrorReason(status) == kBeganToSpan;
}

absl::Status RemoteDevice::Unusable() const {
  return failure_.ok() ? SessionClosed() : failure_;
}

bool RemoteDevice::WindowFull() const {
  return !log_.HasRoomAfter(queue_.size() + (processing_ ? 1 : 0),
                            queued_bytes_);
}

void RemoteDevice::Queue(Work work, bool needs_lease) {
  if (needs_lease) lease_due_ = true;
  queued_bytes_ += work.footprint_bytes;
  ++works_queued_;
  queue_.push_back(std::move(work));
}

void RemoteDevice::QueueSegments(const SealedSegments& sealed,
                                 std::shared_ptr<MetadataWait> metadata) {
  for (Segment* segment : sealed) {
    Work work{segment->lane(), StoragePtr(), segment->footprint_bytes(),
              RunWork{segment, nullptr}};
    if (segment == sealed.back()) {
      std::get<RunWork>(work.action).metadata = std::move(metadata);
    }
    Queue(std::move(work), /*needs_lease=*/true);
  }
}

void RemoteDevice::WaitOrReceive(CondVar* changed,
                                 absl::FunctionRef<bool()> done,
                                 const Deadline& deadline) {
  if (connected_ && !reads_.has_watched() &&
      (!reads_.has_bulk() || stream_->AttendsBulk())) {
    ClientStream* const stream = EnterStream();
    ++attending_;
    mu_.Unlock();
    const bool received = stream->Attend(
        [this, done] {
          MutexLock lock(&mu_);
          return done() || !failure_.ok();
        },
        std::min(deadline.left(), kAttendance));
    mu_.Lock();
    --attending_;
    if (received && plain_waiters_ > 0) {
      mu_.Unlock();
      stream->Recall();
      mu_.Lock();
    }
    LeaveStream();
    if (received || done() || !failure_.ok()) return;
  }
  ++plain_waiters_;
  if (connected_ && attending_ == 0) {
    // Nobody may be receiving: the role stays lent for a moment.
    ClientStream* const stream = EnterStream();
    mu_.Unlock();
    stream->Recall();
    mu_.Lock();
    LeaveStream();
  }
  if (!done() && failure_.ok()) WaitUntil(changed, &mu_, deadline);
  --plain_waiters_;
}

void RemoteDevice::RecallReceiver() {
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&mu_);
    if (!connected_) return;
    stream = EnterStream();
  }
  stream->Recall();
  MutexLock lock(&mu_);
  LeaveStream();
}

absl::Status RemoteDevice::NoAnswer() const {
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, "OPERATION_TIMEOUT",
      absl::StrCat("the worker did not answer within ",
                   absl::FormatDuration(context_->options.operation_timeout)));
}

void RemoteDevice::WakeAll() {
  window_changed_.SignalAll();
  progress_changed_.SignalAll();
  connection_changed_.SignalAll();
  for (Waiter* waiter : waiters_) waiter->changed.SignalAll();
  reads_.FinishWatched();
}

}  // namespace djinn
