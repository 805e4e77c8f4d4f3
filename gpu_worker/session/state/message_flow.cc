#include "gpu_worker/session/state/message_flow.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "gpu_worker/session/base/violation.h"

namespace djinn::worker {
namespace {

RunLog::Waiting WaitingOf(const Inbox::Item& item) {
  return {&item.message, item.arrived, item.deadline};
}

std::vector<RunLog::Waiting> WaitingRuns(const Inbox& inbox) {
  std::vector<RunLog::Waiting> waiting;
  inbox.ForEachRun(
      [&](const Inbox::Item& item) { waiting.push_back(WaitingOf(item)); });
  return waiting;
}

v1::RunGate GateOf(v1::MessageWait::For what) {
  switch (what) {
    case v1::MessageWait::CONTENT:
      return v1::RUN_GATE_CONTENT;
    case v1::MessageWait::BYTES:
      return v1::RUN_GATE_BYTES;
    case v1::MessageWait::VALUE:
      return v1::RUN_GATE_VALUE;
    case v1::MessageWait::GRAPH:
      return v1::RUN_GATE_GRAPH;
    default:
      return v1::RUN_GATE_UNSPECIFIED;
  }
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
  position.need = hold_.RepeatNeed(clock_.Monotonic());
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
  const uint64_t bytes = supply.ByteSizeLong();
  MutexLock lock(&mu_);
  if (OverLocked()) return false;
  absl::StatusOr<bool> awaited = hold_.Supply(std::move(supply));
  if (awaited.ok() && *awaited) traffic_.Add(Traffic::kMessagesIn, bytes);
  return awaited;
}

absl::StatusOr<bool> MessageFlow::CheckNeed(absl::Duration now,
                                            absl::Duration timeout) const {
  MutexLock lock(&mu_);
  // Without a stream, no answer can arrive.
  if (attached_) DJINN_RETURN_IF_ERROR(hold_.CheckNeed(now, timeout));
  return attached_;
}

MessageFlow::Upcoming MessageFlow::upcoming() const {
  MutexLock lock(&mu_);
  return UpcomingLocked();
}

MessageFlow::Upcoming MessageFlow::UpcomingLocked() const {
  Upcoming next;
  next.has_work = HasWorkLocked();
  next.read_or_free = inbox_.read_next() || inbox_.free_next();
  next.freed = inbox_.freed_next();
  next.fast_run = next.has_work && inbox_.fast_run_next() && !hold_.held();
  if (inbox_.next_run() != nullptr && !inbox_.free_next()) {
    next.run_deadline = inbox_.deadline();
  }
  return next;
}

bool MessageFlow::HasWorkLocked() const {
  if (OverLocked() || running_) return false;
  return hold_.held() ? hold_.released() : !inbox_.empty();
}

std::optional<MessageFlow::Taken> MessageFlow::Take(
    std::optional<absl::Duration> now) {
  Taken taken;
  MutexLock lock(&mu_);
  if (!HasWorkLocked()) return std::nullopt;
  running_ = true;
  v1::RunGate gate = v1::RUN_GATE_SESSION;
  taken.upload = hold_.TakeUpload();
  if (!taken.upload.has_value()) taken.pull = hold_.TakePull();
  if (!taken.upload.has_value() && !taken.pull.has_value()) {
    taken.item = inbox_.Take();
    if (now.has_value() && taken.item->message.has_run()) {
      log_.Begin(WaitingOf(*taken.item), next_.phase(), *now);
      gate = v1::RUN_GATE_UNSPECIFIED;
    } else if (taken.item->message.has_define_graph()) {
      gate = v1::RUN_GATE_PLAN;
    }
    RefreshLocked();
    taken.supply = hold_.TakeSupply();
  }
  if (now.has_value() && gate != v1::RUN_GATE_UNSPECIFIED) {
    log_.Enter(gate, *now);
  }
  return taken;
}

std::optional<Inbox::Item> MessageFlow::TakeFastRun() {
  MutexLock lock(&mu_);
  if (!UpcomingLocked().fast_run || inbox_.free_next()) return std::nullopt;
  running_ = true;
  Inbox::Item item = inbox_.Take();
  RefreshLocked();
  return item;
}

std::optional<uint64_t> MessageFlow::PutBack(Inbox::Item item, Lack lack) {
  const uint64_t sequence = item.message.sequence();
  MutexLock lock(&mu_);
  if (dropped_ || cancelling_) {
    CountRun();
    log_.Finish({.state = v1::RunRecord::CANCELLED}, clock_.Monotonic());
    return std::nullopt;
  }
  if (lack.room) hold_.LackRoom(sequence, clock_.Monotonic());
  log_.PutBack();
  inbox_.PutBack(std::move(item));
  RefreshLocked();
  if (lack.graph_id != 0) hold_.AskFor(lack.graph_id, clock_.Monotonic());
  return inbox_.completed();
}

bool MessageFlow::Park(const std::optional<ParkedUpload>& upload,
                       const std::optional<ParkedPull>& pull) {
  MutexLock lock(&mu_);
  if (dropped_ || cancelling_) return false;
  hold_.Park(upload, pull);
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
      run == nullptr ? absl::ZeroDuration()
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
  log_.Abandon(WaitingRuns(inbox_), clock_.Monotonic());
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
  hold_.Clear();
}

MessageFlow::Counts MessageFlow::counts() const {
  MutexLock lock(&mu_);
  const uint64_t outstanding = inbox_.outstanding();
  return {inbox_.received() > 0, outstanding, inbox_.outstanding_bytes(),
          running_ || outstanding > 0, running_};
}

void MessageFlow::DescribeRuns(v1::LeaseRuns* runs) {
  const absl::Duration now = clock_.Monotonic();
  MutexLock lock(&mu_);
  log_.Describe(WaitingRuns(inbox_), inbox_.completed(), now, runs);
}

v1::RunGate MessageFlow::GateLocked(bool full) const {
  if (OverLocked()) return v1::RUN_GATE_UNSPECIFIED;
  const std::optional<MessageHold::Awaited> awaited = hold_.awaited();
  if (awaited.has_value()) return GateOf(awaited->what);
  if (full) return v1::RUN_GATE_REPLIES;
  if (!HasWorkLocked()) return v1::RUN_GATE_UNSPECIFIED;
  const bool lacks_room =
      !inbox_.empty() && hold_.lacks_room(inbox_.next_sequence()).has_value();
  return lacks_room ? v1::RUN_GATE_ROOM : v1::RUN_GATE_WORKER;
}

std::optional<v1::MessageWait> MessageFlow::wait(bool full) const {
  const absl::Duration now = clock_.Monotonic();
  MutexLock lock(&mu_);
  if (OverLocked() || running_) return std::nullopt;
  std::optional<MessageHold::Awaited> awaited = hold_.awaited();
  if (!awaited.has_value()) {
    if (full || !HasWorkLocked()) return std::nullopt;
    awaited.emplace(MessageHold::Awaited{v1::MessageWait::TURN, now});
    if (!inbox_.empty()) {
      const std::optional<absl::Duration> since =
          hold_.lacks_room(inbox_.next_sequence());
      if (since.has_value()) *awaited = {v1::MessageWait::ROOM, *since};
    }
  }
  v1::MessageWait wait;
  wait.set_what(awaited->what);
  wait.set_worker_id(std::move(awaited->worker_id));
  *wait.mutable_waited() = ToProtoDuration(now - awaited->since);
  return wait;
}

}  // namespace djinn::worker
