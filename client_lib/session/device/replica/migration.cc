// Migrates the device to another worker. Until the other worker has all that
// the session holds, the first one has it too, and the session may stay there.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/stream/session_entry.h"
#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn::replica {
namespace {

// The size of tickets that workers accept.
constexpr size_t kTicketBytes = 16;
// Time during which, and pause after which, a session with offers to be fetched
// tries again to leave.
constexpr absl::Duration kLeavePatience = absl::Seconds(2);
constexpr absl::Duration kLeavePause = absl::Milliseconds(10);

absl::Status Declined(absl::string_view reason, absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason, why);
}

// Leaves the worker. An error means that the device must stay.
absl::Status Leave(State& r) {
  ConnectionState& c = r.connection;
  {
    MutexLock lock(&c.mu);
    // An earlier attempt was refused, perhaps because other workers are to
    // fetch offers first.
    if (c.migration.current->left.has_refused()) {
      const absl::Status why =
          StatusFromDetail(c.migration.current->left.refused());
      if (c.migration.current->left.refused().reason() != "OFFERS_PENDING" ||
          c.migration.current->patience->passed()) {
        return why;
      }
      const Deadline pause(kLeavePause, r.context->options.clock);
      while (c.end.wanted() && !c.end.closing && !pause.passed()) {
        WaitUntil(&c.connection_changed, &c.mu, pause);
      }
      if (!c.end.wanted() || c.end.closing) return why;
    }
    if (!c.migration.current->patience.has_value()) {
      c.migration.current->patience.emplace(kLeavePatience,
                                            r.context->options.clock);
    }
  }
  // Released storages need not move.
  EncodedMessages messages;
  r.sender.encoder.CollectDead();
  r.sender.encoder.EncodeFrees(&messages);
  EncodeForgottenModels(r, &messages);
  auto request = std::make_shared<v1::ControlRequest>();
  const std::string ticket = r.context->options.random->Bytes(kTicketBytes);
  request->mutable_ordered()->mutable_migrate()->mutable_leave()->set_ticket(
      ticket);
  const uint64_t sequence =
      r.sender.encoder.EncodeOther(0, std::move(request), &messages);
  {
    MutexLock lock(&c.mu);
    c.migration.current->state = Migration::State::kLeaving;
    c.migration.current->ticket = ticket;
    c.migration.current->leave_sequence = sequence;
  }
  Append(r, std::move(messages));
  return absl::OkStatus();
}

// Opens the session on the other worker and waits until that has the whole
// state.
absl::Status EnterOther(State& r, std::unique_ptr<SessionEntry>* entry) {
  ConnectionState& c = r.connection;
  const SessionOptions& options = r.context->options;
  v1::Lease lease;
  v1::Pull state;
  v1::SessionLimits limits;
  {
    MutexLock lock(&c.mu);
    lease = c.migration.current->request.to().lease();
    limits = c.limits;
    state.set_worker_id(c.lease.worker_id());
    state.set_worker_incarnation(c.lease.worker_incarnation());
    state.set_ticket(c.migration.current->ticket);
    state.set_size_bytes(c.migration.current->left.state_bytes());
  }
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<ClientStream> stream,
      r.context->connector->Connect(lease, r.context->session_id));
  *entry =
      std::make_unique<SessionEntry>(std::move(stream), [&c = r.connection] {
        MutexLock lock(&c.mu);
        c.connection_changed.SignalAll();
      });
  SessionEntry& other = **entry;
  // Gives up, too, when the stream of the old worker breaks, because the state
  // belongs to that worker until all of it has arrived.
  const auto await = [&](auto done, absl::Duration timeout) -> absl::Status {
    const Deadline deadline(timeout, options.clock);
    MutexLock lock(&c.mu);
    while (!done() && !other.over()) {
      if (!c.end.wanted() || c.end.closing || !r.receiver.connected()) {
        return Declined("SESSION_BUSY",
                        "it ends, or its worker is not reached");
      }
      DJINN_RETURN_IF_ERROR(c.migration.current->given_up);
      if (deadline.passed()) {
        return MakeError(absl::StatusCode::kDeadlineExceeded,
                         "OPERATION_TIMEOUT",
                         absl::StrCat("worker ", lease.worker_id(),
                                      " did not answer within ",
                                      absl::FormatDuration(timeout)));
      }
      WaitUntil(&c.connection_changed, &c.mu, deadline);
    }
    return c.migration.current->given_up;
  };
  other.Start(HelloFor(r.context->session_id, lease));
  DJINN_RETURN_IF_ERROR(await([&] { return other.greeting().has_value(); },
                              options.connect_timeout));
  if (const auto hello = other.greeting()) {
    DJINN_RETURN_IF_ERROR(CheckHello(*hello, lease));
    // Messages that were recorded already must fit on the other worker, too.
    if (hello->limits().inline_bytes() < limits.inline_bytes() ||
        hello->limits().max_outstanding_bytes() <
            limits.max_outstanding_bytes()) {
      return Declined("LIMITS_TOO_LOW",
                      "the other worker takes smaller messages");
    }
    other.Enter(std::move(state));
    DJINN_RETURN_IF_ERROR(
        await([] { return false; }, options.operation_timeout));
  }
  return other.outcome().status();
}

// Makes the other worker the device's own, with an order of messages that
// begins with the one that entered.
void BeginThere(State& r, const SessionEntry::Entered& entered)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(r.connection.mu) {
  ConnectionState& c = r.connection;
  MutexLock answers_lock(&r.answers.mu);
  c.migration.gone_over = true;
  const v1::LeaseGranted& to = c.migration.current->request.to();
  c.lease = to.lease();
  c.placement.worker_id = c.lease.worker_id();
  c.placement.reason = to.placement_reason();
  c.limits = entered.hello.limits();
  r.uploader.SetInlineBytes(c.limits.inline_bytes());
  c.log = MessageLog();
  c.log.SetWindow(entered.window);
  r.answers.eager.Begin(entered.hello);
  c.log.Append(entered.enter, entered.enter->ordered().ByteSizeLong(),
               /*ends_work=*/false);
  c.log.MarkSent();
  c.log.Complete(1);
  c.log.TakeCompleted();
  r.queue.SetRoom(c.log);
  c.replies = ReplyLog();
  c.replies.Take(1, 0);
  r.answers.table.BeginAnew(c.migration.current->left.use());
  c.needed.clear();
}

// Continues on the other worker. An error means that the device has failed.
absl::Status GoOver(State& r, const SessionEntry::Entered& entered) {
  ConnectionState& c = r.connection;
  {
    MutexLock lock(&c.mu);
    c.migration.going_over = true;
  }
  // A clean end makes the worker free what it has.
  if (!DropStream(r, absl::OkStatus())) {
    MutexLock lock(&c.mu);
    c.migration.going_over = false;
    // The thread that failed the device may not have set `failure` yet. A
    // session that stopped sets nothing else.
    return c.end.failing.ok() ? c.end.failure : c.end.failing;
  }
  std::string from;
  v1::LeaseGranted to;
  absl::Status given_up;
  absl::Status lost;
  {
    MutexLock lock(&c.mu);
    c.migration.going_over = false;
    from = c.lease.worker_id();
    to = c.migration.current->request.to();
    // The lease may have ended since the other worker had the whole state.
    given_up = c.migration.current->given_up;
    if (given_up.ok()) {
      BeginThere(r, entered);
    } else {
      // Neither worker has the session any more.
      lost = LossOf(to.lease(), c.welcomed, given_up);
      if (c.lineage != nullptr) lost = LoseWorker(r, lost);
    }
  }
  if (!lost.ok()) {
    Fail(r, lost);
    return lost;
  }
  // The device's values are computed again.
  if (!given_up.ok()) return given_up;
  log::Info("a virtual device migrated", {{"device", r.index},
                                          {"from", from},
                                          {"to", to.lease().worker_id()},
                                          {"reason", to.placement_reason()}});
  BeginEncoding(r, /*next_sequence=*/2);
  // The coordinator receives the program's graphs again, for its new worker.
  r.context->SendGraphsAgain();
  return absl::OkStatus();
}

void Stay(State& r) {
  auto request = std::make_shared<v1::ControlRequest>();
  request->mutable_ordered()->mutable_migrate()->mutable_stay();
  EncodedMessages messages;
  r.sender.encoder.EncodeOther(0, std::move(request), &messages);
  Append(r, std::move(messages));
}

}  // namespace

bool OnMigrationRequested(State& r, const v1::MigrationRequest& request) {
  ConnectionState& c = r.connection;
  absl::Status declined;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    if (c.lease.lease_id().empty()) return false;
    // It is there already. A coordinator that does not know gets the outcome
    // from the link.
    if (c.lease.lease_id() == request.to().lease().lease_id()) return true;
    if (c.lease.lease_id() != request.from_lease_id()) return false;
    if (c.migration.current != nullptr) {
      // The coordinator repeated the request after it attached again.
      if (c.migration.current->request.to().lease().lease_id() ==
          request.to().lease().lease_id()) {
        return true;
      }
      declined = Declined("ALREADY_MIGRATING",
                          "the virtual device is migrating already");
    } else if (!c.end.usable()) {
      declined = c.end.Reason();
    } else if (c.recovery.due) {
      declined = Declined("SESSION_BUSY", "it has lost its worker");
    } else if (c.migration.stays) {
      declined = Declined("SPANS_WORKERS", "its virtual device spans workers");
    } else if (r.answers.profiler.active()) {
      declined = Declined("PROFILED", "it is being profiled");
    } else {
      c.migration.current = std::make_unique<Migration>();
      c.migration.current->request = request;
      c.migration.current->works_before = r.queue.pushed();
    }
  }
  if (declined.ok()) {
    r.sender.wakeup.Set();
    return true;
  }
  v1::MigrationOutcome outcome;
  outcome.set_from_lease_id(request.from_lease_id());
  outcome.set_to_lease_id(request.to().lease().lease_id());
  FillDetail(declined, outcome.mutable_failure());
  r.context->link->ReportMigration(r.index, std::move(outcome));
  return true;
}

bool HoldsWorkBack(const State& r) {
  const ConnectionState& c = r.connection;
  return c.migration.current != nullptr &&
         r.queue.popped() >= c.migration.current->works_before;
}

bool MigrationDue(const State& r) {
  const ConnectionState& c = r.connection;
  if (c.migration.current == nullptr) return false;
  if (c.migration.current->state == Migration::State::kLeft) return true;
  if (c.migration.current->state != Migration::State::kFinishing) return false;
  return !c.migration.current->given_up.ok() ||
         (HoldsWorkBack(r) && !r.queue.held() && c.log.empty() &&
          r.answers.table.idle());
}

void Migrate(State& r) {
  ConnectionState& c = r.connection;
  bool left = false;
  absl::Status status;
  {
    MutexLock lock(&c.mu);
    MutexLock answers_lock(&r.answers.mu);
    if (!c.migration.current->waits_since.has_value()) {
      c.migration.current->waits_since = Now(r);
    }
    left = c.migration.current->state == Migration::State::kLeft;
    status = c.migration.current->given_up;
    if (c.end.closing || r.answers.profiler.active()) {
      status = Declined("SESSION_BUSY", "it ends, or is being profiled");
    }
  }
  if (status.ok() && !left) {
    status = Leave(r);
    if (status.ok()) return;
  } else if (status.ok()) {
    std::unique_ptr<SessionEntry> entry;
    status = EnterOther(r, &entry);
    if (status.ok()) {
      const SessionEntry::Entered entered = *entry->outcome();
      entry = nullptr;
      return EndMigration(r, GoOver(r, entered), entered.reply);
    }
  }
  if (left) Stay(r);
  EndMigration(r, std::move(status), {});
}

absl::Status ApplyLeft(State& r, v1::Left* left) {
  ConnectionState& c = r.connection;
  if (c.migration.current == nullptr ||
      c.migration.current->state != Migration::State::kLeaving ||
      left->sequence() != c.migration.current->leave_sequence) {
    return Violation("it answers a session that does not leave it");
  }
  c.migration.current->left = std::move(*left);
  c.migration.current->state = c.migration.current->left.has_refused()
                                   ? Migration::State::kFinishing
                                   : Migration::State::kLeft;
  return absl::OkStatus();
}

void EndMigration(State& r, absl::Status status, const v1::Entered& entered) {
  ConnectionState& c = r.connection;
  v1::MigrationOutcome outcome;
  {
    MutexLock lock(&c.mu);
    if (c.migration.current == nullptr) return;
    outcome.set_from_lease_id(c.migration.current->request.from_lease_id());
    outcome.set_to_lease_id(
        c.migration.current->request.to().lease().lease_id());
    if (c.migration.current->waits_since.has_value()) {
      *outcome.mutable_paused() =
          ToProtoDuration(Now(r) - *c.migration.current->waits_since);
    }
    c.migration.current = nullptr;
    c.connection_changed.SignalAll();
  }
  if (status.ok()) {
    outcome.set_storage_count(entered.storage_count());
    outcome.set_moved_bytes(entered.moved_bytes());
    outcome.set_held_bytes(entered.held_bytes());
  } else {
    log::Warning("a virtual device does not migrate",
                 {{"device", r.index}, {"error", status}});
    FillDetail(status, outcome.mutable_failure());
  }
  r.context->link->ReportMigration(r.index, std::move(outcome));
}

}  // namespace djinn::replica
