// Streams that come and go, and what they bring.
#include <optional>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {

absl::Status Session::CheckResume(const v1::Resume& resume) const {
  const uint64_t last_reply = outbox_.last_number();
  MutexLock lock(&mu_);
  if (resume.sent_sequence() < inbox_.received()) {
    return Violation(absl::StrCat("resumes after ", resume.sent_sequence(),
                                  " messages sent, but this worker received ",
                                  inbox_.received()));
  }
  if (resume.acknowledged_reply() > last_reply) {
    return Violation(absl::StrCat("acknowledges reply ",
                                  resume.acknowledged_reply(),
                                  ", the last one was ", last_reply));
  }
  return absl::OkStatus();
}

void Session::Attach(WorkerStream* stream, uint64_t number,
                     v1::WorkerHello hello, uint64_t acknowledged_reply,
                     StreamWay way) {
  outbox_.Acknowledge(acknowledged_reply);
  const uint64_t room = RoomForContents();
  std::vector<v1::ControlResponse> news(1);
  // Held over both: what is said between them would be neither in the hello nor
  // on the new stream.
  MutexLock lock(&mu_);
  if (dropped_ || number <= stream_number_) return;
  const bool resumed = std::exchange(stream_number_, number) != 0;
  if (!std::exchange(attached_, true)) account_->Join();
  inbox_.Grant(account_->Share(limits_));
  news[0].set_completed_sequence(announced_);
  *news[0].mutable_window() = inbox_.window();
  reported_room_ = room;
  news[0].set_content_room(room);
  hello.set_received_sequence(inbox_.received());
  uploads_.OnStream(way, resumed, &hello);
  if (need_.has_value() && !need_->supply.has_value()) {
    need_->since = environment_.clock->Monotonic();
    news.emplace_back().mutable_need()->set_structure_id(need_->structure_id);
  }
  *news[0].mutable_hello() = std::move(hello);
  outbox_.Attach(stream, number, std::move(news));
}

void Session::Detach(const WorkerStream* stream, uint64_t number) {
  {
    MutexLock lock(&mu_);
    if (number == stream_number_ && std::exchange(attached_, false)) {
      account_->Leave();
    }
  }
  outbox_.Detach(stream);
}

absl::Status Session::CheckAcknowledged(absl::Duration now) const {
  const std::optional<Outbox::Standstill> still = outbox_.standstill();
  // Chunks that the network holds arrive, and are acknowledged, meanwhile.
  const absl::Duration timeout = 2 * environment_.transfer_idle_timeout;
  if (!still.has_value() || now - still->since < timeout) {
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, "ACKNOWLEDGE_TIMEOUT",
      absl::StrCat(still->bytes, " bytes of replies are kept for the client, ",
                   "which took and acknowledged nothing of them for ",
                   absl::FormatDuration(timeout)));
}

bool Session::received_any() const {
  MutexLock lock(&mu_);
  return inbox_.received() > 0;
}

void Session::Receive(v1::ControlRequest message) {
  google::protobuf::RepeatedPtrField<v1::ControlRequest> following;
  following.Swap(message.mutable_following());
  bool runnable = ReceiveOne(std::move(message));
  for (v1::ControlRequest& next : following) {
    if (next.following_size() > 0) {
      Fail(Violation("what follows a message has something that follows it"));
      return;
    }
    if (ReceiveOne(std::move(next))) runnable = true;
  }
  // Once for all: the executor finds them together.
  if (runnable) callbacks_.runnable();
}

bool Session::ReceiveOne(v1::ControlRequest message) {
  const uint64_t acknowledged = message.acknowledged_reply();
  if (acknowledged != 0 && !outbox_.Acknowledge(acknowledged)) {
    Fail(Violation(absl::StrCat("acknowledges reply ", acknowledged,
                                ", the last one was ", outbox_.last_number())));
    return false;
  }
  switch (message.message_case()) {
    case v1::ControlRequest::kOrdered:
      return ReceiveOrdered(std::move(*message.mutable_ordered()));
    case v1::ControlRequest::kSupply:
      Supply(std::move(*message.mutable_supply()));
      break;
    case v1::ControlRequest::kCancel:
      Cancel();
      break;
    case v1::ControlRequest::kProof:
      FailUnlessOk(uploads_.ReceiveProof(std::move(*message.mutable_proof())));
      break;
    case v1::ControlRequest::kHello:
      Fail(Violation("a hello that is not the first message"));
      break;
    case v1::ControlRequest::MESSAGE_NOT_SET:
      if (acknowledged == 0) Fail(Violation("a message that says nothing"));
  }
  return false;
}

void Session::ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                          absl::Span<const absl::string_view> pieces) {
  {
    MutexLock lock(&mu_);
    if (OverLocked()) return;
  }
  FailUnlessOk(uploads_.ReceiveBulk(transfer_id, offset, pieces));
}

bool Session::ReceiveOrdered(v1::Ordered message) {
  std::optional<SessionProfile::Mark> mark;
  if (ABSL_PREDICT_FALSE(profiled_.load(std::memory_order_relaxed)) &&
      message.has_read()) {
    mark = MarkArrival();
  }
  const bool profiles = message.profile().action() == v1::PROFILE_ACTION_START;
  const bool run = message.has_run();
  const int64_t wait = run_deadline_.load(std::memory_order_relaxed);
  const absl::Duration now = run || wait != kNever
                                 ? environment_.clock->Monotonic()
                                 : absl::ZeroDuration();
  const absl::Duration deadline =
      wait == kNever ? absl::InfiniteDuration() : now + absl::Nanoseconds(wait);
  absl::Status added;
  {
    MutexLock lock(&mu_);
    if (cancelling_) {
      traffic_->Add(Traffic::kMessagesIn, message.ByteSizeLong());
    }
    if (OverLocked()) return false;
    const uint64_t before = inbox_.received();
    added = inbox_.Add(std::move(message), deadline, mark, now);
    NoteNext();
    if (run && inbox_.received() > before) {
      ++queued_runs_;
      const bool idle = gates_.gate() == v1::RUN_GATE_UNSPECIFIED;
      runs_.Receive(idle ? gates_.Enter(v1::RUN_GATE_WORKER, now)
                         : gates_.At(now));
    }
    if (ABSL_PREDICT_FALSE(profiles) && inbox_.received() > before) {
      ExpectProfile();
    }
  }
  FailUnlessOk(added);
  return added.ok();
}

void Session::Supply(v1::DefineStructure supply) {
  const uint64_t id = supply.structure_id();
  absl::Status violation;
  {
    MutexLock lock(&mu_);
    if (OverLocked()) return;
    const bool asked = need_.has_value() && need_->structure_id == id &&
                       !need_->supply.has_value();
    // The answer to a Need that was repeated when the stream was resumed.
    if (!asked && id != 0 && id == supplied_) return;
    if (!asked) {
      violation = Violation(
          absl::StrCat("supplies structure ", id, ", which nobody needs"));
    } else if (supply.ByteSizeLong() > limits_.max_outstanding_bytes()) {
      violation = Violation(absl::StrCat(
          "supplies structure ", id, " with ", supply.ByteSizeLong(),
          " bytes, at most ", limits_.max_outstanding_bytes(), " are allowed"));
    } else {
      supplied_ = id;
      traffic_->Add(Traffic::kMessagesIn, supply.ByteSizeLong());
      need_->supply = std::move(supply);
    }
  }
  if (!violation.ok()) return Fail(std::move(violation));
  SettledCallback()();
}

void Session::AskFor(uint64_t structure_id, Inbox::Item item) {
  v1::ControlResponse response;
  response.mutable_need()->set_structure_id(structure_id);
  {
    MutexLock lock(&mu_);
    if (dropped_ || cancelling_) {
      --queued_runs_;
      runs_.Finish({.state = v1::RunRecord::CANCELLED},
                   environment_.clock->Monotonic());
      return;
    }
    response.set_completed_sequence(inbox_.completed());
    runs_.PutBack();
    inbox_.PutBack(std::move(item));
    message_bytes_ = 0;
    NoteNext();
    need_ = Need{structure_id, environment_.clock->Monotonic(), std::nullopt};
  }
  outbox_.PushNews(std::move(response));
}

}  // namespace djinn::worker
