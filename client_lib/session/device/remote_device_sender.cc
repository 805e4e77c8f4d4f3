// Decides what is sent when, on the device's own thread or on one that waits
// for the outcome anyway.
#include <utility>
#include <variant>

#include "absl/base/optimization.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "client_lib/session/device/message_lines.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/debug_flags.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn {
namespace {

// Time that a stream that refused a message may take to end.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);

// Limit on the steps that a thread of the program does as the sender: a few
// pieces of work of a few messages each.
constexpr int kBorrowedSteps = 32;

// Limits on messages that leave together. They are large enough that a message
// costs little more than its bytes, and small enough that the worker need not
// wait.
constexpr uint64_t kMaxTogether = 16;
constexpr uint64_t kMaxTogetherBytes = 4 << 10;

}  // namespace

void RemoteDevice::SenderLoop() {
  Deadline look(absl::InfiniteDuration(), context_->options.clock);
  for (bool goes_on = true; goes_on;) {
    wakeup_.Wait(look);
    Notify(answers_.TakeDue());
    {
      MutexLock lock(&mu_);
      while (sending_) sending_changed_.Wait(&mu_);
      sending_ = true;
    }
    goes_on = Advance(/*own_thread=*/true);
    look = CheckProgress();
    MutexLock lock(&mu_);
    sending_ = false;
  }
}

void RemoteDevice::SendNow() {
  {
    MutexLock lock(&mu_);
    if (sending_ || !receiver_.connected()) {
      wakeup_.Set();
      return;
    }
    sending_ = true;
  }
  Advance(/*own_thread=*/false);
  MutexLock lock(&mu_);
  sending_ = false;
  sending_changed_.Signal();
  if (!receiver_.connected() || log_.Next() != nullptr || !queue_.empty())
    wakeup_.Set();
}

bool RemoteDevice::Advance(bool own_thread) {
  bool free_now = free_due_.exchange(false, std::memory_order_relaxed);
  for (int step = 0; own_thread || step < kBorrowedSteps; ++step) {
    Step taken = TakeStep();
    switch (taken.next) {
      case Next::kOpen:
        if (!own_thread) return true;
        Open();
        break;
      case Next::kSupply:
        SendSupply();
        break;
      case Next::kCancel:
        SendCancel();
        break;
      case Next::kProof:
        SendProof();
        break;
      case Next::kMessage:
        SendMessages();
        break;
      case Next::kAcknowledge:
        SendAcknowledgement();
        break;
      case Next::kWork:
        Process(*std::move(taken.work));
        break;
      case Next::kMigrate:
        if (own_thread) {
          Migrate();
        } else {
          step = kBorrowedSteps;  // The device's own thread does the rest.
        }
        break;
      case Next::kDrop:
        DropEverything();
        break;
      case Next::kStop:
        DropEverything();
        return false;
      case Next::kNothing:
        if (!FinishRound(std::exchange(free_now, false))) return true;
        break;
    }
  }
  if (free_now) free_due_.store(true, std::memory_order_relaxed);
  wakeup_.Set();
  return true;
}

RemoteDevice::Step RemoteDevice::TakeStep() {
  MutexLock lock(&mu_);
  MutexLock answers_lock(&answers_.mu);
  if (end_.stopped) return {Next::kStop, {}};
  if (!end_.failure.ok())
    return {end_.dropped ? Next::kNothing : Next::kDrop, {}};
  if (!receiver_.connected()) {
    // Work that is being cancelled does not justify a new connection.
    const bool opens = !end_.cancelling && (welcomed_ || queue_.needs_lease());
    return {opens ? Next::kOpen : Next::kNothing, {}};
  }
  if (!needed_.empty()) return {Next::kSupply, {}};
  if (end_.cancelling)
    return {end_.cancel_sent ? Next::kNothing : Next::kCancel, {}};
  if (answers_.uploads.has_proofs()) return {Next::kProof, {}};
  const MessageLog::Entry* const next = log_.Next();
  const bool ready = next != nullptr && log_.HasRoom(*next);
  const bool gathers = ready && Gathers();
  if (ready && !gathers) return {Next::kMessage, {}};
  if (MigrationDue()) return {Next::kMigrate, {}};
  if ((next == nullptr || gathers) && !HoldsWorkBack()) {
    if (std::optional<Work> work = queue_.Pop()) {
      answers_.table.SwapAdmitted(&admitted_now_);
      return {Next::kWork, std::move(work)};
    }
  }
  return {replies_.Due() ? Next::kAcknowledge : Next::kNothing, {}};
}

bool RemoteDevice::NothingDue() const {
  return queue_.empty() || (!welcomed_ && !queue_.needs_lease());
}

bool RemoteDevice::FinishRound(bool free_now) {
  const bool frees = encoder_.CollectDead();
  bool closing;
  bool connected;
  {
    MutexLock lock(&mu_);
    if (!end_.failure.ok() || end_.cancelling) return false;
    if (migration_ != nullptr &&
        migration_->state != Migration::State::kFinishing) {
      // A session that has left may send nothing else.
      if (free_now) free_due_.store(true, std::memory_order_relaxed);
      return false;
    }
    // Work that BeginClose() sealed after TakeStep() looked is not drained: its
    // wake-up is still to come. An empty queue stays empty from here on.
    closing = end_.closing && NothingDue() && log_.Next() == nullptr;
    connected = receiver_.connected();
  }
  if (connected && (free_now || closing) &&
      (frees || forgets_models_.load(std::memory_order_relaxed))) {
    EncodedMessages messages;
    encoder_.EncodeFrees(&messages);
    EncodeForgottenModels(&messages);
    Append(std::move(messages));
    return true;
  }
  if (closing) {
    MutexLock lock(&mu_);
    end_.drained = true;
    progress_changed_.SignalAll();
  }
  return false;
}

bool RemoteDevice::Gathers() const {
  // Work of other kinds may wait for the worker.
  return receiver_.stream()->SendsTogether() && queue_.next_is_simple() &&
         !HoldsWorkBack() && !MigrationDue() && log_.unsent() < kMaxTogether &&
         log_.unsent_bytes() < kMaxTogetherBytes;
}

void RemoteDevice::SendMessages() {
  absl::InlinedVector<Message, kMaxTogether> messages;
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&mu_);
    MutexLock answers_lock(&answers_.mu);
    stream = receiver_.stream();
    uint64_t bytes = 0;
    const MessageLog::Entry* next = log_.Next();
    // No message is left if the worker executed them before a resume.
    while (next != nullptr && log_.HasRoom(*next) &&
           messages.size() < kMaxTogether && bytes < kMaxTogetherBytes) {
      if (next->sequence <= log_.sent()) {
        answers_.statistics.bytes_resent += next->bytes;
      }
      bytes += next->bytes;
      if (ABSL_PREDICT_FALSE(answers_.profiler.active())) {
        answers_.profiler.MarkHanded(
            answers_.table.reads().Find(next->sequence), Now());
      }
      replies_.Acknowledged(next->message->acknowledged_reply());
      messages.push_back(next->message);
      log_.MarkSent();
      next = log_.Next();
    }
  }
  SendAll(stream, messages);
}

void RemoteDevice::Send(Message message) {
  ClientStream* stream = nullptr;
  {
    MutexLock lock(&mu_);
    stream = receiver_.stream();
  }
  SendAll(stream, {&message, 1});
}

void RemoteDevice::SendAcknowledgement() {
  auto message = std::make_shared<v1::ControlRequest>();
  {
    MutexLock lock(&mu_);
    message->set_acknowledged_reply(replies_.handled());
    replies_.Acknowledged(message->acknowledged_reply());
  }
  Send(std::move(message));
}

void RemoteDevice::SendSupply() {
  uint64_t id = 0;
  uint64_t completed = 0;
  {
    MutexLock lock(&mu_);
    if (needed_.empty()) return;  // it belonged to a broken stream
    id = needed_.front();
    needed_.pop_front();
    completed = log_.completed();
  }
  encoder_.NoteCompleted(completed);
  const std::string* const definition = encoder_.Definition(id);
  auto message = std::make_shared<v1::ControlRequest>();
  if (definition == nullptr ||
      !message->mutable_supply()->ParseFromString(*definition)) {
    Fail(MakeError(absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
                   absl::StrCat("the worker broke the protocol: it needs "
                                "graph ",
                                id, ", which nothing uses")));
    return;
  }
  {
    MutexLock lock(&answers_.mu);
    ++answers_.statistics.needs_answered;
    answers_.statistics.bytes_up += definition->size();
  }
  Send(std::move(message));
}

void RemoteDevice::SendProof() {
  auto message = std::make_shared<v1::ControlRequest>();
  {
    MutexLock lock(&answers_.mu);
    if (!answers_.uploads.TakeProof(message->mutable_proof())) return;
  }
  Send(std::move(message));
}

void RemoteDevice::SendCancel() {
  auto message = std::make_shared<v1::ControlRequest>();
  message->mutable_cancel();
  {
    MutexLock lock(&mu_);
    end_.cancel_sent = true;
  }
  Send(std::move(message));
}

void RemoteDevice::SendAll(ClientStream* stream,
                           absl::Span<const Message> messages) {
  if (messages.empty()) return;
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kExecution))) {
    for (const Message& message : messages) LogSent(index_, *message);
  }
  const absl::Status sent = stream->SendAll(messages);
  if (sent.ok()) return;
  // The log keeps the messages, and OnClosed() reports how the stream ended.
  MutexLock lock(&mu_);
  const Deadline deadline(kEndTimeout, context_->options.clock);
  while (!link_.closed && end_.failure.ok() && !deadline.passed()) {
    WaitUntil(&connection_changed_, &mu_, deadline);
  }
  if (link_.closed || !end_.failure.ok()) return;
  receiver_.SetConnected(false);
  link_.broken = true;
  link_.break_cause = sent;
}

Deadline RemoteDevice::CheckProgress() {
  const SessionOptions& options = context_->options;
  absl::Status lost;
  {
    MutexLock lock(&mu_);
    const MessageLog::Entry* const next = log_.Next();
    if (next == nullptr || !receiver_.connected() || !end_.failure.ok()) {
      stalled_.reset();
      return Deadline(absl::InfiniteDuration(), options.clock);
    }
    const uint64_t progress = progress_.load(std::memory_order_relaxed);
    if (!stalled_.has_value() || stalled_progress_ != progress) {
      stalled_progress_ = progress;
      stalled_.emplace(options.operation_timeout, options.clock);
    }
    if (!stalled_->passed()) return *stalled_;
    lost = WorkerLost(absl::DeadlineExceededError(absl::StrCat(
        "no progress for ", absl::FormatDuration(options.operation_timeout),
        "; ", log_.entries().size(), " messages are unfinished")));
  }
  Fail(std::move(lost));
  return Deadline(absl::InfiniteDuration(), options.clock);
}

void RemoteDevice::DropEverything() {
  absl::Status failure, reason;
  {
    MutexLock lock(&mu_);
    failure = end_.failure;
    reason = end_.Reason();
  }
  EndMigration(std::move(failure), {});
  // The recorder accepts no call after the failure or the end of the session.
  recorder_.Fail(std::move(reason));
  recorder_.DropOpenSegments();
  MessageLog log;
  {
    MutexLock lock(&mu_);
    MutexLock answers_lock(&answers_.mu);
    end_.dropped = true;
    std::swap(log, log_);
    answers_.table.Clear();
    answers_.uploads.Clear();
    forgotten_models_.clear();
    forgets_models_.store(false, std::memory_order_relaxed);
  }
  for (const Work& work : queue_.Drop()) {
    if (const auto* run = std::get_if<RunWork>(&work.action)) {
      run->segment->Clear();
    }
  }
  encoder_.Drop();
}

void RemoteDevice::Process(Work work) {
  EncodedMessages messages;
  encoder_.NoteAdmitted(std::exchange(admitted_now_, {}));
  if (ABSL_PREDICT_FALSE(debug::Has(debug::kProfile))) ProfileSender(&messages);
  encoder_.Encode(std::move(work), &messages);
  EncodeForgottenModels(&messages);
  Append(std::move(messages));
}

void RemoteDevice::Append(EncodedMessages messages) {
  absl::InlinedVector<uint64_t, 4> sizes;
  for (const EncodedMessage& message : messages) {
    sizes.push_back(message.request->ordered().ByteSizeLong());
  }
  uint64_t limit = 0;
  uint64_t too_large = 0;
  bool ends = false;
  {
    MutexLock lock(&mu_);
    MutexLock answers_lock(&answers_.mu);
    limit = limits_.max_outstanding_bytes();
    for (size_t i = 0; i < messages.size(); ++i) {
      EncodedMessage& message = messages[i];
      if (sizes[i] > limit) {
        too_large = sizes[i];
        break;
      }
      Register(&message);
      message.request->set_acknowledged_reply(replies_.handled());
      answers_.statistics.bytes_up += sizes[i];
      log_.Append(std::move(message.request), sizes[i], message.ends_work,
                  std::move(message.written));
      ends |= message.ends_work;
    }
    queue_.SetRoom(log_, ends);
    if (end_.cancelling) progress_changed_.SignalAll();
  }
  if (too_large == 0) return;
  Fail(LimitExceeded("MESSAGE_TOO_LARGE",
                     "one message to the worker (calls with many values or "
                     "very large graphs)",
                     limit, 0, too_large));
}

void RemoteDevice::Register(EncodedMessage* message) {
  const v1::Ordered& ordered = message->request->ordered();
  Registration& registration = message->registration;
  if (auto* inlined = std::get_if<InlinedUpload>(&registration)) {
    answers_.eager.Complete(inlined->size_bytes);
  } else if (auto* upload =
                 std::get_if<std::shared_ptr<UploadWait>>(&registration)) {
    if (ordered.install().has_transfer()) {
      (*upload)->transfer_id = ordered.install().transfer().transfer_id();
      answers_.uploads.Add(std::move(*upload));
    } else {
      (*upload)->state = UploadWait::State::kOver;
      (*upload)->changed.SignalAll();
    }
  }
  answers_.table.Register(message);
}

}  // namespace djinn
