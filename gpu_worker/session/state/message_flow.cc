#include "gpu_worker/session/state/message_flow.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "gpu_worker/session/base/violation.h"

namespace djinn::worker {
namespace {

RunLog::Waiting WaitingOf(const Inbox::Item& item) {
  return {&item.message, item.arrived, item.deadline};
}

}  // namespace

absl::Status MessageFlow::CheckResume(const v1::Resume& resume,
                                      uint64_t last_reply) const {
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

void MessageFlow::Attach(uint64_t stream,
                         absl::FunctionRef<WindowWidth(bool joins)> width,
                         absl::FunctionRef<void(const Position&)> take_over) {
  MutexLock lock(&mu_);
  if (dropped_ || stream <= stream_) return;
  Position position;
  position.resumed = std::exchange(stream_, stream) != 0;
  inbox_.Grant(width(!std::exchange(attached_, true)));
  position.announced = announced_;
  position.received = inbox_.received();
  position.window = inbox_.window();
  if (NeedsLocked()) {
    need_->since = clock_.Monotonic();
    position.need = need_->graph_id;
  }
  take_over(position);
}

bool MessageFlow::Detach(uint64_t stream) {
  MutexLock lock(&mu_);
  return stream == stream_ && std::exchange(attached_, false);
}

absl::StatusOr<bool> MessageFlow::Receive(
    v1::Ordered message, absl::Duration deadline,
    std::optional<SessionProfile::Mark> mark, absl::Duration now,
    absl::FunctionRef<void()> expect_profile) {
  const bool profiles = message.profile().action() == v1::PROFILE_ACTION_START;
  const bool run = message.has_run();
  MutexLock lock(&mu_);
  if (cancelling_) {
    traffic_.Add(Traffic::kMessagesIn, message.ByteSizeLong());
  }
  if (OverLocked()) return false;
  const uint64_t before = inbox_.received();
  const absl::Status added =
      inbox_.Add(std::move(message), deadline, mark, now);
  RefreshLocked();
  if (inbox_.received() > before) {
    if (run) {
      ++next_.queued_runs_;
      log_.Receive(now);
    }
    if (profiles) expect_profile();
  }
  DJINN_RETURN_IF_ERROR(added);
  return true;
}

absl::StatusOr<bool> MessageFlow::Supply(v1::DefineGraph supply) {
  const uint64_t id = supply.graph_id();
  MutexLock lock(&mu_);
  if (OverLocked()) return false;
  const bool asked = NeedsLocked() && need_->graph_id == id;
  // Ignores the answer to a question that was repeated when the stream was
  // resumed.
  if (!asked && id != 0 && id == supplied_) return false;
  if (!asked) {
    return Violation(
        absl::StrCat("supplies graph ", id, ", which nobody needs"));
  }
  if (supply.ByteSizeLong() > limits_.max_outstanding_bytes()) {
    return Violation(absl::StrCat(
        "supplies graph ", id, " with ", supply.ByteSizeLong(),
        " bytes, at most ", limits_.max_outstanding_bytes(), " are allowed"));
  }
  supplied_ = id;
  traffic_.Add(Traffic::kMessagesIn, supply.ByteSizeLong());
  need_->supply = std::move(supply);
  return true;
}

absl::StatusOr<bool> MessageFlow::CheckNeed(absl::Duration now,
                                            absl::Duration timeout) const {
  MutexLock lock(&mu_);
  // Without a stream, no answer can arrive.
  if (attached_ && NeedsLocked() && now - need_->since >= timeout) {
    return MakeError(absl::StatusCode::kDeadlineExceeded, "NEED_TIMEOUT",
                     absl::StrCat("graph ", need_->graph_id,
                                  " was asked for again and did not come for ",
                                  absl::FormatDuration(timeout)));
  }
  return attached_;
}

bool MessageFlow::HasWork() const {
  MutexLock lock(&mu_);
  return HasWorkLocked();
}

bool MessageFlow::HasWorkLocked() const {
  if (OverLocked() || running_) return false;
  if (upload_.has_value()) return uploads_.settled();
  if (pull_.has_value()) return pulls_.settled();
  if (need_.has_value()) return need_->supply.has_value();
  return !inbox_.empty();
}

std::optional<MessageFlow::Taken> MessageFlow::Take(
    std::optional<absl::Duration> now) {
  Taken taken;
  MutexLock lock(&mu_);
  if (!HasWorkLocked()) return std::nullopt;
  running_ = true;
  v1::RunGate gate = v1::RUN_GATE_SESSION;
  if (upload_.has_value()) {
    taken.upload = std::exchange(upload_, std::nullopt);
  } else if (pull_.has_value()) {
    taken.pull = std::exchange(pull_, std::nullopt);
  } else {
    taken.item = inbox_.Take();
    if (now.has_value() && taken.item->message.has_run()) {
      log_.Begin(WaitingOf(*taken.item), next_.phase(), *now);
      gate = v1::RUN_GATE_UNSPECIFIED;
    } else if (taken.item->message.has_define_graph()) {
      gate = v1::RUN_GATE_PLAN;
    }
    RefreshLocked();
    if (need_.has_value()) taken.supply = std::move(need_->supply);
    need_.reset();
  }
  if (now.has_value() && gate != v1::RUN_GATE_UNSPECIFIED) {
    log_.Enter(gate, *now);
  }
  return taken;
}

bool MessageFlow::ReadOrFreeNext(size_t most_freed) const {
  MutexLock lock(&mu_);
  return (inbox_.read_next() || inbox_.free_next()) &&
         inbox_.freed_next() <= most_freed;
}

bool MessageFlow::FastRunReadyLocked() const {
  return HasWorkLocked() && inbox_.fast_run_next() && !upload_.has_value() &&
         !pull_.has_value() && !need_.has_value();
}

bool MessageFlow::FastRunNext(size_t most_freed) const {
  MutexLock lock(&mu_);
  return FastRunReadyLocked() && inbox_.freed_next() <= most_freed;
}

std::optional<Inbox::Item> MessageFlow::TakeFastRun() {
  MutexLock lock(&mu_);
  if (!FastRunReadyLocked() || inbox_.free_next()) return std::nullopt;
  running_ = true;
  Inbox::Item item = inbox_.Take();
  RefreshLocked();
  return item;
}

bool MessageFlow::RunIsLate(absl::Duration ahead, absl::Duration now) const {
  MutexLock lock(&mu_);
  return inbox_.next_run() != nullptr && !inbox_.free_next() &&
         inbox_.deadline() - now < ahead + next_.expected();
}

bool MessageFlow::PutBackLocked(Inbox::Item item) {
  if (dropped_ || cancelling_) {
    CountRun();
    log_.Finish({.state = v1::RunRecord::CANCELLED}, clock_.Monotonic());
    return false;
  }
  log_.PutBack();
  inbox_.PutBack(std::move(item));
  RefreshLocked();
  return true;
}

bool MessageFlow::PutBack(Inbox::Item item, bool lacks_room) {
  const uint64_t sequence = item.message.sequence();
  MutexLock lock(&mu_);
  if (lacks_room && no_room_for_ != sequence) {
    no_room_for_ = sequence;
    no_room_since_ = clock_.Monotonic();
  }
  return PutBackLocked(std::move(item));
}

std::optional<uint64_t> MessageFlow::AskFor(uint64_t graph_id,
                                            Inbox::Item item) {
  MutexLock lock(&mu_);
  if (!PutBackLocked(std::move(item))) return std::nullopt;
  need_ = Need{graph_id, clock_.Monotonic(), std::nullopt};
  return inbox_.completed();
}

bool MessageFlow::Park(const std::optional<ParkedUpload>& upload,
                       const std::optional<ParkedPull>& pull) {
  MutexLock lock(&mu_);
  if (dropped_ || cancelling_) return false;
  upload_ = upload;
  pull_ = pull;
  return true;
}

MessageFlow::Completed MessageFlow::Complete(uint64_t sequence, uint64_t bytes,
                                             bool counts, WindowWidth width) {
  MutexLock lock(&mu_);
  inbox_.Complete(sequence, bytes, counts);
  inbox_.Grant(width);
  return {inbox_.window(), inbox_.empty(), stream_};
}

bool MessageFlow::Announce(uint64_t sequence, uint64_t stream) {
  MutexLock lock(&mu_);
  announced_ = sequence;
  return stream == stream_;
}

std::optional<uint64_t> MessageFlow::EndStep(absl::FunctionRef<void()> free) {
  bool tell = false;
  {
    MutexLock lock(&mu_);
    if (!dropped_ && !cancelling_) {
      running_ = false;
      return std::nullopt;
    }
    tell = !dropped_;
  }
  free();
  MutexLock lock(&mu_);
  running_ = false;
  if (!tell) return std::nullopt;
  return inbox_.completed();
}

void MessageFlow::Refresh() {
  MutexLock lock(&mu_);
  RefreshLocked();
}

void MessageFlow::RefreshLocked() {
  const absl::Duration deadline = inbox_.deadline();
  const v1::Run* const run = inbox_.next_run();
  const bool timed = deadline != absl::InfiniteDuration();
  const absl::Duration expected =
      run == nullptr || !timed
          ? absl::ZeroDuration()
          : log_.Expected(run->graph_id(), clock_.Monotonic());
  next_.deadline_.store(
      timed ? absl::ToInt64Nanoseconds(deadline) : NextMessage::kNever,
      std::memory_order_relaxed);
  next_.fast_run_.store(inbox_.fast_run_next(), std::memory_order_relaxed);
  next_.phase_.store(
      run == nullptr ? v1::PHASE_UNSPECIFIED : log_.PhaseOf(run->graph_id()),
      std::memory_order_relaxed);
  next_.expected_.store(absl::ToInt64Nanoseconds(expected),
                        std::memory_order_relaxed);
}

bool MessageFlow::EndTurn(bool full, absl::Duration now) {
  MutexLock lock(&mu_);
  log_.Enter(GateLocked(full), now);
  return !full && HasWorkLocked();
}

void MessageFlow::NoteOutOfCredit(absl::Duration now) {
  MutexLock lock(&mu_);
  if (HasWorkLocked()) log_.Enter(v1::RUN_GATE_CREDIT, now);
}

bool MessageFlow::over() const {
  MutexLock lock(&mu_);
  return OverLocked();
}

bool MessageFlow::Fail() {
  MutexLock lock(&mu_);
  if (OverLocked()) return false;
  failed_ = true;
  return true;
}

bool MessageFlow::Cancel(absl::FunctionRef<void()> stop) {
  MutexLock lock(&mu_);
  if (OverLocked()) return false;
  cancelling_ = true;
  stop();
  log_.Abandon(WaitingRuns(), clock_.Monotonic());
  ForgetLocked();
  return !std::exchange(running_, true);
}

bool MessageFlow::Drop(absl::FunctionRef<void()> leave) {
  MutexLock lock(&mu_);
  if (dropped_) return false;
  dropped_ = true;
  ForgetLocked();
  if (std::exchange(attached_, false)) leave();
  return !std::exchange(running_, true);
}

void MessageFlow::ForgetLocked() {
  // The messages were received, so their bytes count.
  const Inbox::Forgotten forgotten = inbox_.Clear();
  next_.queued_runs_ -= forgotten.runs;
  traffic_.Add(Traffic::kMessagesIn, forgotten.bytes);
  upload_.reset();
  pull_.reset();
  need_.reset();
}

bool MessageFlow::busy() const {
  MutexLock lock(&mu_);
  return running_ || inbox_.outstanding() > 0;
}

bool MessageFlow::received_any() const {
  MutexLock lock(&mu_);
  return inbox_.received() > 0;
}

void MessageFlow::Report(v1::SessionUse* use) const {
  use->set_queued_runs(next_.queued_runs());
  MutexLock lock(&mu_);
  use->set_outstanding(static_cast<uint32_t>(inbox_.outstanding()));
  use->set_outstanding_bytes(inbox_.outstanding_bytes());
}

std::vector<RunLog::Waiting> MessageFlow::WaitingRuns() const {
  std::vector<RunLog::Waiting> waiting;
  inbox_.ForEachRun(
      [&](const Inbox::Item& item) { waiting.push_back(WaitingOf(item)); });
  return waiting;
}

void MessageFlow::DescribeRuns(v1::LeaseRuns* runs) {
  const absl::Duration now = clock_.Monotonic();
  MutexLock lock(&mu_);
  log_.Describe(WaitingRuns(), inbox_.completed(), now, runs);
}

v1::RunGate MessageFlow::GateLocked(bool full) const {
  if (OverLocked()) return v1::RUN_GATE_UNSPECIFIED;
  if (upload_.has_value()) {
    const std::optional<Uploads::Awaited> awaited = uploads_.awaited();
    if (awaited.has_value()) {
      return awaited->from_disk ? v1::RUN_GATE_CONTENT : v1::RUN_GATE_BYTES;
    }
  }
  if (pull_.has_value() && !pulls_.settled()) return v1::RUN_GATE_VALUE;
  if (NeedsLocked()) return v1::RUN_GATE_GRAPH;
  if (full) return v1::RUN_GATE_REPLIES;
  if (!HasWorkLocked()) return v1::RUN_GATE_UNSPECIFIED;
  if (!inbox_.empty() && inbox_.next_sequence() == no_room_for_) {
    return v1::RUN_GATE_ROOM;
  }
  return v1::RUN_GATE_WORKER;
}

std::optional<v1::MessageWait> MessageFlow::wait(bool full) const {
  const absl::Duration now = clock_.Monotonic();
  const auto say = [now](v1::MessageWait::For what, absl::Duration since) {
    v1::MessageWait wait;
    wait.set_what(what);
    *wait.mutable_waited() = ToProtoDuration(now - since);
    return wait;
  };
  MutexLock lock(&mu_);
  if (OverLocked() || running_) return std::nullopt;
  if (upload_.has_value()) {
    const std::optional<Uploads::Awaited> awaited = uploads_.awaited();
    if (awaited.has_value()) {
      return say(awaited->from_disk ? v1::MessageWait::CONTENT
                                    : v1::MessageWait::BYTES,
                 awaited->since);
    }
  }
  if (pull_.has_value()) {
    const std::optional<Pulls::Awaited> awaited = pulls_.awaited();
    if (awaited.has_value()) {
      v1::MessageWait wait = say(v1::MessageWait::VALUE, awaited->since);
      wait.set_worker_id(awaited->worker_id);
      return wait;
    }
  }
  if (NeedsLocked()) return say(v1::MessageWait::GRAPH, need_->since);
  if (full || !HasWorkLocked()) return std::nullopt;
  if (!inbox_.empty() && inbox_.next_sequence() == no_room_for_) {
    return say(v1::MessageWait::ROOM, no_room_since_);
  }
  return say(v1::MessageWait::TURN, now);
}

}  // namespace djinn::worker
