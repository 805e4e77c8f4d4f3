#include "gpu_worker/session/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/leases/lease_turn.h"
#include "gpu_worker/session/base/violation.h"
#include "gpu_worker/session/handlers/handlers.h"
#include "gpu_worker/session/state/message_flow.h"
#include "gpu_worker/session/state/outbox.h"
#include "gpu_worker/session/state/session_state.h"

namespace djinn::worker {
namespace {

// Returns DEADLINE_EXCEEDED (ACKNOWLEDGE_TIMEOUT) when the client has not
// acknowledged replies for too long.
absl::Status CheckAcknowledged(const SessionState& s, absl::Duration now) {
  const std::optional<Outbox::Standstill> still = s.replies.outbox.standstill();
  // Leaves time for chunks in the network to arrive and be acknowledged.
  const absl::Duration timeout = 2 * s.who.environment.transfer_idle_timeout;
  if (!still.has_value() || now - still->since < timeout) {
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kDeadlineExceeded, "ACKNOWLEDGE_TIMEOUT",
      absl::StrCat(still->bytes, " bytes of replies are kept for the client, ",
                   "which took and acknowledged nothing of them for ",
                   absl::FormatDuration(timeout)));
}

}  // namespace

Session::Session(const SessionEnvironment* environment, std::string session_id,
                 std::string tenant, std::shared_ptr<TenantAccount> account,
                 std::shared_ptr<LeaseMeter> meter, v1::SessionLimits limits,
                 SessionCallbacks callbacks)
    : state_(std::make_unique<SessionState>(SessionIdentity{
          *environment, session_id, tenant, std::move(limits),
          std::move(callbacks), std::move(account), std::move(meter),
          std::make_shared<const RunPeer>(
              RunPeer{tenant, log::ShortId(session_id)})})),
      steps_(state_.get()) {}

Session::~Session() { Drop(); }

const SessionIdentity& Session::who() const { return state_->who; }
const SessionStatus& Session::status() const { return state_->status; }
const SessionQuota& Session::quota() const { return state_->quota; }
const NextMessage& Session::next() const { return state_->flow.next(); }
RunLog& Session::log() { return state_->log; }
Outbox& Session::outbox() { return state_->replies.outbox; }

absl::Status Session::CheckResume(const v1::Resume& resume) const {
  return state_->flow.CheckResume(resume, state_->replies.outbox.last_number());
}

void Session::Attach(WorkerStream* stream, uint64_t number,
                     v1::WorkerHello hello, uint64_t acknowledged_reply,
                     StreamWay way) {
  SessionState& s = *state_;
  s.replies.outbox.Acknowledge(acknowledged_reply);
  const uint64_t room = RoomForContents(s);
  s.flow.Attach(
      number,
      [&](bool joins) {
        if (joins) s.who.account->Join();
        return s.who.account->Share(s.who.limits);
      },
      [&](const MessageFlow::Position& position) {
        std::vector<v1::ControlResponse> news(1);
        news[0].set_completed_sequence(position.announced);
        *news[0].mutable_window() = position.window;
        s.status.reported_room = room;
        news[0].set_content_room(room);
        hello.set_received_sequence(position.received);
        s.uploads.OnStream(way, position.resumed, &hello);
        if (position.need != 0) {
          news.emplace_back().mutable_need()->set_graph_id(position.need);
        }
        *news[0].mutable_hello() = std::move(hello);
        s.replies.outbox.Attach(stream, number, std::move(news));
      });
}

void Session::Detach(const WorkerStream* stream, uint64_t number) {
  if (state_->flow.Detach(number)) state_->who.account->Leave();
  state_->replies.outbox.Detach(stream);
}

void Session::Receive(v1::ControlRequest message) {
  google::protobuf::RepeatedPtrField<v1::ControlRequest> following;
  following.Swap(message.mutable_following());
  bool runnable = ReceiveOne(std::move(message));
  for (v1::ControlRequest& next : following) {
    if (next.following_size() > 0) {
      Fail(*state_,
           Violation("what follows a message has something that follows it"));
      return;
    }
    if (ReceiveOne(std::move(next))) runnable = true;
  }
  // Called once for all messages, so that the executor finds them together.
  if (runnable) state_->who.callbacks.runnable();
}

bool Session::ReceiveOne(v1::ControlRequest message) {
  SessionState& s = *state_;
  Outbox& outbox = s.replies.outbox;
  const uint64_t acknowledged = message.acknowledged_reply();
  if (acknowledged != 0 && !outbox.Acknowledge(acknowledged)) {
    Fail(s,
         Violation(absl::StrCat("acknowledges reply ", acknowledged,
                                ", the last one was ", outbox.last_number())));
    return false;
  }
  switch (message.message_case()) {
    case v1::ControlRequest::kOrdered:
      return ReceiveOrdered(std::move(*message.mutable_ordered()));
    case v1::ControlRequest::kSupply: {
      const absl::StatusOr<bool> awaited =
          s.flow.Supply(std::move(*message.mutable_supply()));
      FailUnlessOk(s, awaited.status());
      if (awaited.ok() && *awaited) SettledCallback(s)();
      break;
    }
    case v1::ControlRequest::kCancel:
      Cancel();
      break;
    case v1::ControlRequest::kProof:
      FailUnlessOk(s,
                   s.uploads.ReceiveProof(std::move(*message.mutable_proof())));
      break;
    case v1::ControlRequest::kHello:
      Fail(s, Violation("a hello that is not the first message"));
      break;
    case v1::ControlRequest::MESSAGE_NOT_SET:
      if (acknowledged == 0) Fail(s, Violation("a message that says nothing"));
  }
  return false;
}

bool Session::ReceiveOrdered(v1::Ordered message) {
  SessionState& s = *state_;
  std::optional<SessionProfile::Mark> mark;
  if (message.has_read()) mark = s.profiling.arrivals.MarkArrival();
  const int64_t wait = s.status.run_deadline.load(std::memory_order_relaxed);
  const bool timed = wait != SessionStatus::kNever;
  const absl::Duration now = message.has_run() || timed
                                 ? s.who.environment.clock->Monotonic()
                                 : absl::ZeroDuration();
  const absl::StatusOr<bool> added = s.flow.Receive(
      std::move(message),
      timed ? now + absl::Nanoseconds(wait) : absl::InfiniteDuration(), mark,
      now, [&s] { ExpectProfile(s); });
  FailUnlessOk(s, added.status());
  return added.ok() && *added;
}

void Session::ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                          absl::Span<const absl::string_view> pieces) {
  SessionState& s = *state_;
  if (s.flow.over()) return;
  FailUnlessOk(s, s.uploads.ReceiveBulk(transfer_id, offset, pieces));
}

void Session::Apply(const v1::LeaseClaims& lease) {
  SessionState& s = *state_;
  s.quota.SetLimits(MemoryLimits::Of(lease.limits()));
  s.status.declared = lease.urgency().priority_class();
  s.status.run_deadline = absl::ToInt64Nanoseconds(RunDeadlineOf(lease));
}

void Session::CheckDeadlines() {
  SessionState& s = *state_;
  const absl::Duration now = s.who.environment.clock->Monotonic();
  const absl::StatusOr<bool> attached =
      s.flow.CheckNeed(now, s.who.environment.transfer_idle_timeout);
  if (absl::Status silent = CheckAcknowledged(s, now); !silent.ok()) {
    return Fail(s, std::move(silent));
  }
  if (!attached.ok()) return Fail(s, attached.status());
  s.pulls.CheckDeadline();
  s.uploads.CheckDeadline(*attached);
}

void Session::Cancel() {
  SessionStatus& status = state_->status;
  const bool idle =
      state_->flow.Cancel([&] { status.cancelled = status.stopped = true; });
  if (idle) steps_.EndStep();  // Otherwise the step in progress does.
}

void Session::Stop() { state_->status.stopped = true; }

void Session::Drop() {
  SessionState& s = *state_;
  s.status.stopped = true;
  // Otherwise the step in progress frees the state.
  if (s.flow.Drop([&s] { s.who.account->Leave(); })) steps_.EndStep();
}

v1::SessionUse Session::use() const {
  const SessionState& s = *state_;
  const auto fill = [&s](StorageClass storage_class, v1::StorageUse* use) {
    const SessionQuota::ClassUse used = s.quota.used(storage_class);
    use->set_count(used.count);
    use->set_size_bytes(used.bytes);
  };
  v1::SessionUse use;
  fill(StorageClass::kContent, use.mutable_contents());
  fill(StorageClass::kOwn, use.mutable_storages());
  fill(StorageClass::kGenerator, use.mutable_generators());
  if (s.quota.used(StorageClass::kCache).count > 0) {
    fill(StorageClass::kCache, use.mutable_caches());
  }
  use.set_graph_count(s.status.graphs);
  s.models.Report(&use);
  use.set_queued_runs(s.flow.next().queued_runs());
  const MessageFlow::Counts waiting = s.flow.counts();
  use.set_outstanding(static_cast<uint32_t>(waiting.outstanding));
  use.set_outstanding_bytes(waiting.outstanding_bytes);
  return use;
}

void Session::DescribeRuns(v1::LeaseRuns* runs) {
  state_->flow.DescribeRuns(runs);
}

bool Session::busy() const { return state_->flow.counts().busy; }

bool Session::executing() const { return state_->flow.counts().executing; }

bool Session::received_any() const {
  return state_->flow.counts().received_any;
}

std::optional<v1::MessageWait> Session::wait() const {
  return state_->flow.wait(state_->replies.outbox.Full());
}

}  // namespace djinn::worker
