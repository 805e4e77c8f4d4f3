// Reads values: the waits, and the bytes that arrive on Bulk.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/io/fresh_memory.h"

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

// A read that the program may wait for later.
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
    device_->answers_.reads().Unwatch(wait_.get());
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
        device_->answers_.reads().Watch(wait_.get(), std::move(callback));
        callback = nullptr;
      }
    }
    if (callback != nullptr) return callback();
    // No waiting thread receives, so the stream's own thread must.
    device_->receiver_.Recall();
  }

 private:
  bool IsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(device_->mu_) {
    return wait_->done || !device_->end_.failure.ok();
  }

  const std::shared_ptr<RemoteDevice> device_;
  const std::shared_ptr<ReadWait> wait_;
  void* const destination_;
};

absl::StatusOr<std::shared_ptr<ReadWait>> RemoteDevice::BeginRead(
    uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
    void* destination, uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(
      const bool answered,
      AnswerFromHost(lane, *storage, view, destination, bytes));
  if (answered) return nullptr;
  auto wait = std::make_shared<ReadWait>(destination, bytes);
  DJINN_RETURN_IF_ERROR(IssueRead(lane, storage, view, &wait));
  SendNow();
  return wait;
}

absl::Status RemoteDevice::FinishRead(ReadWait* wait, void* destination) {
  {
    MutexLock lock(&mu_);
    waiters_.insert(wait);
    const absl::Status status = AwaitRead(wait, absl::InfiniteDuration());
    waiters_.erase(wait);
    if (!status.ok()) {
      Abandon(wait);
      return status;
    }
  }
  if (!wait->error.ok()) {
    context_->root_errors.AddReported(index_, wait->error);
    return wait->error;
  }
  if (wait->value.has_value()) Deliver(*wait, destination);
  if (ABSL_PREDICT_FALSE(wait->marks != nullptr)) FinishRequest(wait);
  return absl::OkStatus();
}

absl::Status RemoteDevice::Read(uint32_t lane, RemoteStorage* storage,
                                const srg::TensorView& view, void* destination,
                                uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<ReadWait> wait,
                         BeginRead(lane, storage, view, destination, bytes));
  return wait == nullptr ? absl::OkStatus()
                         : FinishRead(wait.get(), destination);
}

absl::Status RemoteDevice::CheckSound(uint32_t lane, RemoteStorage* storage) {
  // A read of no elements succeeds exactly if the storage is not poisoned.
  srg::TensorView nothing;
  nothing.data_type = srg::DataType::kUint8;
  nothing.sizes = {0};
  nothing.strides = {1};
  const auto wait = std::make_shared<ReadWait>(nullptr, 0);
  DJINN_RETURN_IF_ERROR(recorder_.ReadQuietly(lane, storage, nothing, wait));
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
    void* destination, uint64_t bytes) {
  auto wait = std::make_shared<ReadWait>(destination, bytes);
  DJINN_RETURN_IF_ERROR(IssueRead(lane, storage, view, &wait));
  auto handle =
      std::make_unique<ReadHandle>(shared_from_this(), wait, destination);
  wakeup_.Set();
  return handle;
}

absl::Status RemoteDevice::IssueRead(uint32_t lane, RemoteStorage* storage,
                                     const srg::TensorView& view,
                                     std::shared_ptr<ReadWait>* wait) {
  if (IsForkedChild()) return AfterForkError();
  DJINN_RETURN_IF_ERROR(CheckViewBytes(view, (*wait)->bytes));
  absl::Duration began;
  absl::Duration asked;
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile))) {
    asked = Now();
    began = ProfileRecorder::Global().TakeBeginning(asked);
  }
  return recorder_.Read(lane, storage, view, wait, [&](ReadWait* read) {
    if (ABSL_PREDICT_TRUE(!debug::Has(debug::kProfile))) return;
    MutexLock lock(&mu_);
    profiler_.MarkAsked(read, began, asked);
  });
}

absl::StatusOr<bool> RemoteDevice::AnswerFromHost(uint32_t lane,
                                                  const RemoteStorage& storage,
                                                  const srg::TensorView& view,
                                                  void* destination,
                                                  uint64_t bytes) {
  const auto is_one = [](int64_t size) { return size == 1; };
  if (IsForkedChild() || view.conjugate || view.negative ||
      !std::all_of(view.sizes.begin(), view.sizes.end(), is_one)) {
    return false;
  }
  const HostValuePtr value = recorder_.FindReadable(storage);
  if (value == nullptr) return false;
  DJINN_RETURN_IF_ERROR(CheckViewBytes(view, bytes));
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(view);
  const HostBytes known = value->Bytes();
  if (known == nullptr || !extent.ok() || *extent > known->size()) return false;
  DJINN_RETURN_IF_ERROR(recorder_.NoteAnswered(lane));
  wakeup_.Set();
  std::memcpy(destination, known->data() + *extent - bytes, bytes);
  return true;
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

absl::Status RemoteDevice::AwaitRead(ReadWait* wait, absl::Duration timeout) {
  const SessionOptions& options = context_->options;
  const Deadline deadline(timeout, options.clock);
  Deadline patience(options.operation_timeout, options.clock);
  size_t copied = 0;
  while (!wait->done) {
    if (!end_.failure.ok()) return end_.failure;
    if (deadline.passed()) {
      return MakeError(absl::StatusCode::kDeadlineExceeded, "VALUE_PENDING",
                       absl::StrCat("the value was not here within ",
                                    absl::FormatDuration(timeout)));
    }
    if (patience.passed()) {
      // A large value may take longer as long as its chunks arrive.
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
    wait = answers_.reads().FindBulk(transfer_id);
    if (wait == nullptr) return;  // a repeated chunk of a known value
    misplaced = !wait->chunks->Fits(offset, size);
    if (!misplaced) {
      if (!wait->chunks->Take(offset)) return;  // a repeated chunk
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
      answers_.reads().EraseBulk(transfer_id);
      replies_.Release(wait->reply_number, wait->bytes);
      // The value's last byte arrived.
      if (ABSL_PREDICT_FALSE(wait->marks != nullptr)) {
        wait->marks->arrived = Now();
      }
      answers_.reads().Finish(wait.get());
      // A leader's locks may conflict with callbacks, as in OnMessage().
      if (!receiver_.led()) callbacks = answers_.reads().TakeDue();
      wake = replies_.Due() || MigrationDue() || answers_.reads().has_due();
    }
    if (wait->abandoned) wait->changed.SignalAll();
  }
  Notify(callbacks);
  if (wake) wakeup_.Set();
}

}  // namespace djinn
