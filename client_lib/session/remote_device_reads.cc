// Reads: what waits, and the bytes that come on Bulk.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/debug_flags.h"
#include "client_lib/session/fork_guard.h"
#include "client_lib/session/profile_recorder.h"
#include "client_lib/session/remote_device.h"
#include "common/error.h"
#include "common/fresh_memory.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

absl::Status CheckViewBytes(const srg::TensorView& view, uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(const int64_t elements, srg::ElementCount(view));
  const uint64_t expected =
      static_cast<uint64_t>(elements) *
      static_cast<uint64_t>(srg::ElementSize(view.data_type));
  if (bytes == expected) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, "SIZE_MISMATCH",
                   absl::StrCat("a read of ", srg::DescribeView(view), " has ",
                                expected, " bytes, the destination ", bytes));
}

// Copies the value of the reply. A read of no bytes may have no destination.
void Deliver(const ReadWait& wait, void* destination) {
  if (wait.bytes > 0) std::memcpy(destination, wait.value->data(), wait.bytes);
}

}  // namespace

// A read that somebody may wait for later.
class RemoteDevice::ReadHandle final : public PendingRead {
 public:
  ReadHandle(std::shared_ptr<RemoteDevice> device,
             std::shared_ptr<ReadWait> wait, void* destination)
      : device_(std::move(device)),
        wait_(std::move(wait)),
        destination_(destination) {
    MutexLock lock(&device_->mu_);
    device_->waiters_.insert(wait_.get());
  }

  ~ReadHandle() override {
    if (IsForkedChild()) return;  // a lock may be held for ever
    MutexLock lock(&device_->mu_);
    device_->waiters_.erase(wait_.get());
    device_->reads_.Unwatch(wait_.get());
    device_->Abandon(wait_.get());
  }

  bool Ready() const override {
    if (IsForkedChild()) return true;
    MutexLock lock(&device_->mu_);
    return IsReady();
  }

  absl::Status Wait(absl::Duration timeout) override {
    if (IsForkedChild()) return AfterForkError();
    {
      MutexLock lock(&device_->mu_);
      DJINN_RETURN_IF_ERROR(device_->AwaitRead(wait_.get(), timeout));
      if (wait_->value.has_value()) {
        Deliver(*wait_, destination_);
        wait_->value.reset();
      }
    }
    if (wait_->error.ok()) {
      if (ABSL_PREDICT_FALSE(wait_->marks != nullptr)) {
        device_->FinishRequest(wait_.get());
      }
      return absl::OkStatus();
    }
    device_->context_->root_errors.AddReported(device_->index_, wait_->error);
    return wait_->error;
  }

  void OnReady(std::function<void()> callback) override {
    if (!IsForkedChild()) {
      MutexLock lock(&device_->mu_);
      if (!IsReady()) {
        device_->reads_.Watch(wait_.get(), std::move(callback));
        callback = nullptr;
      }
    }
    if (callback != nullptr) return callback();
    // Nobody waits who could receive.
    device_->RecallReceiver();
  }

 private:
  bool IsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(device_->mu_) {
    return wait_->done || !device_->failure_.ok();
  }

  const std::shared_ptr<RemoteDevice> device_;
  const std::shared_ptr<ReadWait> wait_;
  void* const destination_;
};

absl::Status RemoteDevice::Read(uint32_t lane, RemoteStorage* storage,
                                const srg::TensorView& view, void* destination,
                                uint64_t bytes, Caller caller) {
  DJINN_ASSIGN_OR_RETURN(
      const bool answered,
      AnswerFromHost(lane, *storage, view, destination, bytes, caller));
  if (answered) return absl::OkStatus();
  auto wait = std::make_shared<ReadWait>(destination, bytes);
  DJINN_RETURN_IF_ERROR(IssueRead(lane, storage, view, &wait, caller));
  SendNow();
  {
    MutexLock lock(&mu_);
    waiters_.insert(wait.get());
    const absl::Status status = AwaitRead(wait.get(), absl::InfiniteDuration());
    waiters_.erase(wait.get());
    if (!status.ok()) {
      Abandon(wait.get());
      return status;
    }
  }
  if (!wait->error.ok()) {
    context_->root_errors.AddReported(index_, wait->error);
    return wait->error;
  }
  if (wait->value.has_value()) Deliver(*wait, destination);
  if (ABSL_PREDICT_FALSE(wait->marks != nullptr)) FinishRequest(wait.get());
  return absl::OkStatus();
}

absl::Status RemoteDevice::CheckSound(uint32_t lane, RemoteStorage* storage) {
  // A worker's answer to a read of no elements is whether there are any.
  srg::TensorView nothing;
  nothing.data_type = srg::DataType::kUint8;
  nothing.sizes = {0};
  nothing.strides = {1};
  const auto wait = std::make_shared<ReadWait>(nullptr, 0);
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(Caller::kOrdered));
    SealedSegments writers;
    recorder_.SealUsers(storage, /*writers_only=*/true, &writers);
    QueueSegments(writers);
    QueueRead(lane, storage, nothing, wait);
  }
  SendNow();
  MutexLock lock(&mu_);
  waiters_.insert(wait.get());
  const absl::Status status = AwaitRead(wait.get(), absl::InfiniteDuration());
  waiters_.erase(wait.get());
  if (status.ok()) return wait->error;
  Abandon(wait.get());
  return status;
}

absl::StatusOr<std::unique_ptr<PendingRead>> RemoteDevice::StartRead(
    uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
    void* destination, uint64_t bytes, Caller caller) {
  auto wait = std::make_shared<ReadWait>(destination, bytes);
  DJINN_RETURN_IF_ERROR(IssueRead(lane, storage, view, &wait, caller));
  auto handle =
      std::make_unique<ReadHandle>(shared_from_this(), wait, destination);
  wakeup_.Set();
  return handle;
}

absl::Status RemoteDevice::IssueRead(uint32_t lane, RemoteStorage* storage,
                                     const srg::TensorView& view,
                                     std::shared_ptr<ReadWait>* wait,
                                     Caller caller) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(CheckViewBytes(view, (*wait)->bytes));
  absl::Duration began;
  absl::Duration asked;
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile))) {
    asked = Now();
    began = ProfileRecorder::Global().TakeBeginning(asked);
  }
  MutexLock lock(&mu_);
  DJINN_RETURN_IF_ERROR(Enter(caller));
  ++statistics_.reads;
  RefuseRecording(lane, "READS_VALUE", "it reads a value from the device");
  predictor_.OnRead(lane, storage->id(), view, (*wait)->bytes);
  if (auto foreseen = reads_.TakeForeseen(VersionAt(*storage), view)) {
    *wait = std::move(foreseen);
  } else {
    SealedSegments writers;
    recorder_.SealUsers(storage, /*writers_only=*/true, &writers);
    QueueSegments(writers);
    QueueRead(lane, storage, view, *wait);
  }
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile))) {
    MarkAsked(wait->get(), began, asked);
  }
  // What the value does not depend on comes after it: a loss is back before
  // the step that followed it was made.
  SealedSegments rest;
  recorder_.SealLane(lane, &rest);
  QueueSegments(rest);
  return absl::OkStatus();
}

absl::StatusOr<bool> RemoteDevice::AnswerFromHost(
    uint32_t lane, const RemoteStorage& storage, const srg::TensorView& view,
    void* destination, uint64_t bytes, Caller caller) {
  const auto is_one = [](int64_t size) { return size == 1; };
  if (IsForkedChild() || view.conjugate || view.negative ||
      !std::all_of(view.sizes.begin(), view.sizes.end(), is_one)) {
    return false;
  }
  HostValuePtr value;
  {
    MutexLock lock(&mu_);
    value = host_values_.FindReadable(VersionAt(storage));
  }
  if (value == nullptr) return false;
  DJINN_RETURN_IF_ERROR(CheckViewBytes(view, bytes));
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(view);
  const HostBytes known = value->Bytes();
  if (known == nullptr || !extent.ok() || *extent > known->size()) return false;
  {
    MutexLock lock(&mu_);
    DJINN_RETURN_IF_ERROR(Enter(caller));
    RefuseRecording(lane, "READS_VALUE", "it reads a value from the device");
    ++statistics_.reads;
    ++statistics_.reads_answered_here;
    // Whoever answers, the program is cut alike.
    predictor_.OnAnswered(lane);
    SealedSegments sealed;
    recorder_.SealLane(lane, &sealed);
    QueueSegments(sealed);
  }
  wakeup_.Set();
  std::memcpy(destination, known->data() + *extent - bytes, bytes);
  return true;
}

uint64_t RemoteDevice::VersionOf(const RemoteStorage& storage) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return 0;
  MutexLock lock(&mu_);
  return storage.version_;
}

HostValuePtr RemoteDevice::FindHostValue(const StorageAt& storage) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return nullptr;
  MutexLock lock(&mu_);
  if (storage.storage->version_ != storage.version) return nullptr;
  return host_values_.Find(VersionAt(*storage.storage));
}

void RemoteDevice::KeepHostValue(const StorageAt& written,
                                 absl::Span<const StorageAt> operands,
                                 HostValuePtr value, bool readable) {
  if (ABSL_PREDICT_FALSE(IsForkedChild())) return;
  MutexLock lock(&mu_);
  if (written.storage->version_ != written.version) return;
  for (const StorageAt& operand : operands) {
    if (operand.storage->version_ != operand.version) return;
  }
  host_values_.Keep(VersionAt(*written.storage), std::move(value), readable);
}

void RemoteDevice::QueueRead(uint32_t lane, RemoteStorage* storage,
                             const srg::TensorView& view,
                             const std::shared_ptr<ReadWait>& wait) {
  if (!storage->born_) {
    const uint64_t size = storage->size_bytes();
    Queue({lane, StoragePtr(storage), 0,
           CreateWork{recorder_.StampWrite(storage), size}},
          /*needs_lease=*/true);
  }
  if (ABSL_PREDICT_FALSE(Profiled() != nullptr)) {
    wait->marks = std::make_unique<ReadMarks>();
  }
  storage->unsent_uses_.fetch_add(1, std::memory_order_relaxed);
  Queue({lane, StoragePtr(storage), 0, ReadWork{storage->version_, view, wait}},
        /*needs_lease=*/true);
}

void RemoteDevice::Foresee(const Segment& segment,
                           const ReadPredictor::Prediction& prediction,
                           SealedSegments* sealed) {
  const absl::Span<const Touch> touches = segment.touches_of_last_call();
  RemoteStorage* const storage = touches[prediction.touch].storage.get();
  const uint32_t lane = segment.lane();
  recorder_.SealWriters(lane, storage, sealed);
  QueueSegments(*sealed);
  QueueForeseen(lane, storage, prediction);
}

void RemoteDevice::QueueForeseen(uint32_t lane, RemoteStorage* storage,
                                 const ReadPredictor::Prediction& prediction) {
  // The storage may be smaller than that of the call it resembles.
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(prediction.view);
  if (!extent.ok() || *extent > storage->size_bytes()) return;
  // Comes in the reply: larger values are not foreseen.
  static_assert(ReadPredictor::kMaxBytes <= kAlwaysInlineBytes);
  auto wait = std::make_shared<ReadWait>(nullptr, prediction.bytes);
  QueueRead(lane, storage, prediction.view, wait);
  reads_.AddForeseen(VersionAt(*storage), prediction.view, std::move(wait));
}

absl::Status RemoteDevice::AwaitRead(ReadWait* wait, absl::Duration timeout) {
  const SessionOptions& options = context_->options;
  const Deadline deadline(timeout, options.clock);
  Deadline patience(options.operation_timeout, options.clock);
  size_t copied = 0;
  while (!wait->done) {
    if (!failure_.ok()) return failure_;
    if (deadline.passed()) {
      return MakeError(absl::StatusCode::kDeadlineExceeded, "VALUE_PENDING",
                       absl::StrCat("the value was not here within ",
                                    absl::FormatDuration(timeout)));
    }
    if (patience.passed()) {
      // A large value takes its time.
      const size_t before = std::exchange(
          copied, wait->chunks.has_value() ? wait->chunks->copied() : 0);
      if (copied == before) return NoAnswer();
      patience = Deadline(options.operation_timeout, options.clock);
    }
    WaitOrReceive(
        &wait->changed, [wait] { return wait->done; },
        deadline.left() < patience.left() ? deadline : patience);
  }
  return absl::OkStatus();
}

void RemoteDevice::Abandon(ReadWait* wait) {
  wait->abandoned = true;
  while (wait->copying > 0) wait->changed.Wait(&mu_);
}

void RemoteDevice::FinishRead(ReadWait* wait) {
  if (ABSL_PREDICT_FALSE(wait->marks != nullptr) && wait->transfer_id != 0) {
    wait->marks->arrived = Now();  // its last byte
  }
  reads_.Finish(wait);
}

void RemoteDevice::Notify(const ReadTable::Callbacks& callbacks) {
  for (const auto& callback : callbacks) callback();
}

void RemoteDevice::OnBulk(uint64_t transfer_id, uint64_t offset,
                          absl::Span<const absl::string_view> pieces) {
  uint64_t size = 0;
  for (const absl::string_view piece : pieces) size += piece.size();
  std::shared_ptr<ReadWait> wait;
  bool misplaced = false;
  bool copies = false;
  {
    MutexLock lock(&mu_);
    statistics_.bytes_down += size;
    ++progress_;
    wait = reads_.FindBulk(transfer_id);
    if (wait == nullptr) return;  // sent again; known
    misplaced = !wait->chunks->Fits(offset, size);
    if (!misplaced) {
      if (!wait->chunks->Take(offset)) return;  // likewise
      copies = !wait->abandoned;
      if (copies) ++wait->copying;
    }
  }
  if (misplaced) {
    FailInCallback(MakeError(
        absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
        absl::StrCat("the worker broke the protocol: ", size, " bytes at ",
                     offset, " of a value of ", wait->bytes)));
    return;
  }
  if (copies) {
    char* destination = wait->destination + offset;
    PopulateForWrite(destination, size);
    for (const absl::string_view piece : pieces) {
      std::memcpy(destination, piece.data(), piece.size());
      destination += piece.size();
    }
  }
  bool wake = false;
  ReadTable::Callbacks callbacks;
  {
    MutexLock lock(&mu_);
    if (copies) --wait->copying;
    wait->chunks->Copied();
    if (wait->announced && wait->chunks->complete()) {
      reads_.EraseBulk(transfer_id);
      replies_.Release(wait->reply_number, wait->bytes);
      FinishRead(wait.get());
      // As in OnMessage().
      if (attending_ == 0) callbacks = reads_.TakeDue();
      wake = replies_.Due() || MigrationDue() || reads_.has_due();
    }
    if (wait->abandoned) wait->changed.SignalAll();
  }
  Notify(callbacks);
  if (wake) wakeup_.Set();
}

}  // namespace djinn
