#include "client_lib/session/device/answers/value_reader.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/model/fork_guard.h"
#include "client_lib/session/profile/profile_recorder.h"
#include "client_lib/session/profile/request_tracer.h"
#include "client_lib/session/transfer/read_table.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn {
namespace {

int64_t ThreadNumber() {
  thread_local const int64_t number = syscall(SYS_gettid);
  return number;
}

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
class ValueReader::Handle final : public PendingRead {
 public:
  Handle(std::shared_ptr<void> owner, ValueReader* reader,
         std::shared_ptr<ReadWait> wait, void* destination)
      : owner_(std::move(owner)),
        reader_(reader),
        answers_(reader->answers_),
        wait_(std::move(wait)),
        destination_(destination) {
    MutexLock lock(&answers_->mu);
    answers_->waiters.insert(wait_.get());
  }

  ~Handle() override {
    if (IsForkedChild()) return;  // a lock may be held for ever
    ReadTable::Callbacks dropped;
    MutexLock lock(&answers_->mu);
    answers_->waiters.erase(wait_.get());
    dropped = answers_->table.reads().Unwatch(wait_.get());
    answers_->Abandon(wait_.get());
  }

  bool Ready() const override {
    if (IsForkedChild()) return true;
    MutexLock lock(&answers_->mu);
    return IsReady();
  }

  absl::Status Wait(absl::Duration timeout) override {
    if (IsForkedChild()) return AfterForkError();
    {
      MutexLock lock(&answers_->mu);
      DJINN_RETURN_IF_ERROR(answers_->AwaitRead(wait_.get(), timeout));
      if (wait_->value.has_value()) {
        Deliver(*wait_, destination_);
        wait_->value.reset();
      }
    }
    if (ABSL_PREDICT_FALSE(wait_->traced != nullptr)) {
      reader_->ExportTrace(wait_.get(), wait_->error);
    }
    if (wait_->error.ok()) {
      if (ABSL_PREDICT_FALSE(wait_->marks != nullptr)) {
        reader_->AddToProfile(wait_.get());
      }
      return absl::OkStatus();
    }
    reader_->context_->root_errors.AddReported(reader_->index_, wait_->error);
    return wait_->error;
  }

  void OnReady(std::function<void()> callback) override {
    if (!IsForkedChild()) {
      MutexLock lock(&answers_->mu);
      if (!IsReady()) {
        answers_->table.reads().Watch(wait_.get(), std::move(callback));
        callback = nullptr;
      }
    }
    if (callback != nullptr) return callback();
    // No waiting thread receives, so the stream's own thread must.
    answers_->receiver->Reclaim();
  }

 private:
  bool IsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(answers_->mu) {
    return wait_->done || !answers_->failure.ok();
  }

  const std::shared_ptr<void> owner_;
  ValueReader* const reader_;
  Answers* const answers_;
  const std::shared_ptr<ReadWait> wait_;
  void* const destination_;
};

absl::StatusOr<std::shared_ptr<ReadWait>> ValueReader::Begin(
    uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
    void* destination, uint64_t bytes) {
  DJINN_ASSIGN_OR_RETURN(
      const bool answered,
      AnswerFromHost(lane, *storage, view, destination, bytes));
  if (answered) return nullptr;
  auto wait = std::make_shared<ReadWait>(destination, bytes);
  DJINN_RETURN_IF_ERROR(Issue(lane, storage, view, &wait));
  sender_->SendNow();
  return wait;
}

absl::Status ValueReader::AwaitOrAbandon(ReadWait* wait) {
  MutexLock lock(&answers_->mu);
  answers_->waiters.insert(wait);
  absl::Status status = answers_->AwaitRead(wait, absl::InfiniteDuration());
  answers_->waiters.erase(wait);
  if (!status.ok()) answers_->Abandon(wait);
  return status;
}

absl::Status ValueReader::Finish(ReadWait* wait, void* destination) {
  const absl::Status waited = AwaitOrAbandon(wait);
  if (waited.ok() && wait->error.ok() && wait->value.has_value()) {
    Deliver(*wait, destination);
  }
  if (ABSL_PREDICT_FALSE(wait->traced != nullptr)) {
    ExportTrace(wait, waited.ok() ? wait->error : waited);
  }
  DJINN_RETURN_IF_ERROR(waited);
  if (!wait->error.ok()) {
    context_->root_errors.AddReported(index_, wait->error);
    return wait->error;
  }
  if (ABSL_PREDICT_FALSE(wait->marks != nullptr)) AddToProfile(wait);
  return absl::OkStatus();
}

absl::Status ValueReader::CheckSound(uint32_t lane, RemoteStorage* storage) {
  // A read of no elements succeeds exactly if the storage is not poisoned.
  srg::TensorView nothing;
  nothing.data_type = srg::DataType::kUint8;
  nothing.sizes = {0};
  nothing.strides = {1};
  const auto wait = std::make_shared<ReadWait>(nullptr, 0);
  DJINN_RETURN_IF_ERROR(recorder_->ReadQuietly(lane, storage, nothing, wait));
  sender_->SendNow();
  DJINN_RETURN_IF_ERROR(AwaitOrAbandon(wait.get()));
  MutexLock lock(&answers_->mu);
  return wait->error;
}

absl::StatusOr<std::unique_ptr<PendingRead>> ValueReader::Start(
    std::shared_ptr<void> owner, uint32_t lane, RemoteStorage* storage,
    const srg::TensorView& view, void* destination, uint64_t bytes) {
  auto wait = std::make_shared<ReadWait>(destination, bytes);
  DJINN_RETURN_IF_ERROR(Issue(lane, storage, view, &wait));
  auto handle =
      std::make_unique<Handle>(std::move(owner), this, wait, destination);
  sender_->Wake();
  return handle;
}

absl::Status ValueReader::Issue(uint32_t lane, RemoteStorage* storage,
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
  const TracedRequest* traced = nullptr;
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kTrace))) {
    traced = RequestTracer::Current();
    if (traced != nullptr) asked = Now();
  }
  absl::Status issued =
      recorder_->Read(lane, storage, view, wait, [&](ReadWait* read) {
        if (ABSL_PREDICT_FALSE(traced != nullptr)) {
          MutexLock lock(&answers_->mu);
          read->traced = std::make_unique<TracedRead>(
              TracedRead{.request = *traced, .asked = asked});
        }
        if (ABSL_PREDICT_TRUE(!debug::Has(debug::kProfile))) return;
        MutexLock lock(&answers_->mu);
        answers_->profiler.MarkAsked(read, began, asked);
      });
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kTrace))) {
    RequestTracer::EndRequest();
  }
  return issued;
}

absl::StatusOr<bool> ValueReader::AnswerFromHost(uint32_t lane,
                                                 const RemoteStorage& storage,
                                                 const srg::TensorView& view,
                                                 void* destination,
                                                 uint64_t bytes) {
  const auto is_one = [](int64_t size) { return size == 1; };
  if (IsForkedChild() || view.conjugate || view.negative ||
      !std::all_of(view.sizes.begin(), view.sizes.end(), is_one)) {
    return false;
  }
  const HostValuePtr value = recorder_->FindReadable(storage);
  if (value == nullptr) return false;
  DJINN_RETURN_IF_ERROR(CheckViewBytes(view, bytes));
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(view);
  const HostBytes known = value->Bytes();
  if (known == nullptr || !extent.ok() || *extent > known->size()) return false;
  DJINN_RETURN_IF_ERROR(recorder_->NoteAnswered(lane));
  sender_->Wake();
  std::memcpy(destination, known->data() + *extent - bytes, bytes);
  return true;
}

void ValueReader::AddToProfile(ReadWait* wait) {
  std::unique_ptr<ReadMarks> marks;
  ClockRelation clocks;
  {
    MutexLock lock(&answers_->mu);
    marks = answers_->profiler.TakeMarks(wait, &clocks);
  }
  if (marks == nullptr || !marks->complete()) return;
  RequestProfile request;
  request.device = index_;
  request.thread = ThreadNumber();
  request.began = marks->began;
  request.ended = Now();
  request.stages = StagesOf(*marks, clocks, request.ended);
  ProfileRecorder::Global().AddRequest(request);
}

void ValueReader::ExportTrace(ReadWait* wait, const absl::Status& outcome) {
  std::unique_ptr<TracedRead> traced;
  {
    MutexLock lock(&answers_->mu);
    traced = std::move(wait->traced);
  }
  if (traced == nullptr) return;
  RequestTracer::Global().Export(*traced, {.now = Now(),
                                           .device = index_,
                                           .tenant = context_->tenant,
                                           .outcome = outcome});
}

}  // namespace djinn
