// Migrates the device to another worker. Until the other worker has all that
// the session holds, the first one has it too, and the session may stay there.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/stream/session_entry.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
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

}  // namespace

bool RemoteDevice::OnMigrationRequested(const v1::MigrationRequest& request) {
  absl::Status declined;
  {
    MutexLock lock(&mu_);
    MutexLock answers_lock(&answers_.mu);
    if (lease_.lease_id().empty() ||
        lease_.lease_id() != request.from_lease_id()) {
      return false;
    }
    if (migration_ != nullptr) {
      // The coordinator repeated the request after it attached again.
      if (migration_->request.to().lease().lease_id() ==
          request.to().lease().lease_id()) {
        return true;
      }
      declined = Declined("ALREADY_MIGRATING", "it is on its way elsewhere");
    } else if (!end_.usable()) {
      declined = end_.Reason();
    } else if (stays_) {
      declined = Declined("SPANS_WORKERS", "its virtual device spans workers");
    } else if (answers_.profiler.active()) {
      declined = Declined("PROFILED", "it is being profiled");
    } else {
      migration_ = std::make_unique<Migration>();
      migration_->request = request;
      migration_->works_before = queue_.pushed();
    }
  }
  if (declined.ok()) {
    wakeup_.Set();
    return true;
  }
  v1::MigrationOutcome outcome;
  outcome.set_from_lease_id(request.from_lease_id());
  outcome.set_to_lease_id(request.to().lease().lease_id());
  FillDetail(declined, outcome.mutable_failure());
  context_->link->ReportMigration(index_, std::move(outcome));
  return true;
}

bool RemoteDevice::HoldsWorkBack() const {
  return migration_ != nullptr && queue_.popped() >= migration_->works_before;
}

bool RemoteDevice::MigrationDue() const {
  if (migration_ == nullptr) return false;
  if (migration_->state == Migration::State::kLeft) return true;
  if (migration_->state != Migration::State::kFinishing) return false;
  return !migration_->given_up.ok() || (HoldsWorkBack() && !queue_.held() &&
                                        log_.empty() && answers_.table.idle());
}

void RemoteDevice::Migrate() {
  bool left = false;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    MutexLock answers_lock(&answers_.mu);
    if (!migration_->waits_since.has_value()) migration_->waits_since = Now();
    left = migration_->state == Migration::State::kLeft;
    status = migration_->given_up;
    if (end_.closing || answers_.profiler.active()) {
      status = Declined("SESSION_BUSY", "it ends, or is being profiled");
    }
  }
  if (status.ok() && !left) {
    status = Leave();
    if (status.ok()) return;
  } else if (status.ok()) {
    std::unique_ptr<SessionEntry> entry;
    status = EnterOther(&entry);
    if (status.ok()) {
      const SessionEntry::Entered entered = *entry->outcome();
      entry = nullptr;
      return EndMigration(GoOver(entered), entered.reply);
    }
  }
  if (left) Stay();
  EndMigration(std::move(status), {});
}

absl::Status RemoteDevice::Leave() {
  {
    MutexLock lock(&mu_);
    // An earlier attempt was refused, perhaps because other workers are to
    // fetch offers first.
    if (migration_->left.has_refused()) {
      const absl::Status why = StatusFromDetail(migration_->left.refused());
      if (migration_->left.refused().reason() != "OFFERS_PENDING" ||
          migration_->patience->passed()) {
        return why;
      }
      const Deadline pause(kLeavePause, context_->options.clock);
      while (end_.wanted() && !end_.closing && !pause.passed()) {
        WaitUntil(&connection_changed_, &mu_, pause);
      }
      if (!end_.wanted() || end_.closing) return why;
    }
    if (!migration_->patience.has_value()) {
      migration_->patience.emplace(kLeavePatience, context_->options.clock);
    }
  }
  // Released storages need not move.
  EncodedMessages messages;
  encoder_.CollectDead();
  encoder_.EncodeFrees(&messages);
  EncodeForgottenModels(&messages);
  auto request = std::make_shared<v1::ControlRequest>();
  const std::string ticket = context_->options.random->Bytes(kTicketBytes);
  request->mutable_ordered()->mutable_migrate()->mutable_leave()->set_ticket(
      ticket);
  const uint64_t sequence =
      encoder_.EncodeOther(0, std::move(request), &messages);
  {
    MutexLock lock(&mu_);
    migration_->state = Migration::State::kLeaving;
    migration_->ticket = ticket;
    migration_->leave_sequence = sequence;
  }
  Append(std::move(messages));
  return absl::OkStatus();
}

absl::Status RemoteDevice::ApplyLeft(v1::Left* left) {
  if (migration_ == nullptr ||
      migration_->state != Migration::State::kLeaving ||
      left->sequence() != migration_->leave_sequence) {
    return MakeError(absl::StatusCode::kInternal, "PROTOCOL_VIOLATION",
                     "the worker broke the protocol: nobody leaves it");
  }
  migration_->left = std::move(*left);
  migration_->state = migration_->left.has_refused()
                          ? Migration::State::kFinishing
                          : Migration::State::kLeft;
  return absl::OkStatus();
}

absl::Status RemoteDevice::EnterOther(std::unique_ptr<SessionEntry>* entry) {
  const SessionOptions& options = context_->options;
  v1::Lease lease;
  v1::Pull state;
  v1::SessionLimits limits;
  {
    MutexLock lock(&mu_);
    lease = migration_->request.to().lease();
    limits = limits_;
    state.set_worker_id(lease_.worker_id());
    state.set_worker_incarnation(lease_.worker_incarnation());
    state.set_ticket(migration_->ticket);
    state.set_size_bytes(migration_->left.state_bytes());
  }
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<ClientStream> stream,
      context_->connector->Connect(lease, context_->session_id));
  *entry = std::make_unique<SessionEntry>(std::move(stream), [this] {
    MutexLock lock(&mu_);
    connection_changed_.SignalAll();
  });
  SessionEntry& other = **entry;
  // Gives up, too, when the stream of the old worker breaks, because the state
  // belongs to that worker until all of it has arrived.
  const auto await = [&](auto done, absl::Duration timeout) -> absl::Status {
    const Deadline deadline(timeout, options.clock);
    MutexLock lock(&mu_);
    while (!done() && !other.over()) {
      if (!end_.wanted() || end_.closing || !receiver_.connected()) {
        return Declined("SESSION_BUSY",
                        "it ends, or its worker is not reached");
      }
      DJINN_RETURN_IF_ERROR(migration_->given_up);
      if (deadline.passed()) {
        return MakeError(absl::StatusCode::kDeadlineExceeded,
                         "OPERATION_TIMEOUT",
                         absl::StrCat("worker ", lease.worker_id(),
                                      " did not answer within ",
                                      absl::FormatDuration(timeout)));
      }
      WaitUntil(&connection_changed_, &mu_, deadline);
    }
    return migration_->given_up;
  };
  other.Start(HelloFor(context_->session_id, lease));
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

absl::Status RemoteDevice::GoOver(const SessionEntry::Entered& entered) {
  {
    MutexLock lock(&mu_);
    going_over_ = true;
  }
  // A clean end makes the worker free what it has.
  if (!DropStream(absl::OkStatus())) {
    MutexLock lock(&mu_);
    going_over_ = false;
    return end_.failure;
  }
  {
    MutexLock lock(&mu_);
    MutexLock answers_lock(&answers_.mu);
    going_over_ = false;
    gone_over_ = true;
    const v1::LeaseGranted& to = migration_->request.to();
    log::Info("goes on at another worker", {{"device", index_},
                                            {"from", lease_.worker_id()},
                                            {"to", to.lease().worker_id()},
                                            {"reason", to.placement_reason()}});
    lease_ = to.lease();
    placement_.worker_id = lease_.worker_id();
    placement_.reason = to.placement_reason();
    limits_ = entered.hello.limits();
    uploader_.SetInlineBytes(limits_.inline_bytes());
    // The order of messages on the other worker begins with the one that
    // entered.
    log_ = MessageLog();
    log_.SetWindow(entered.window);
    answers_.eager.Begin(entered.hello);
    log_.Append(entered.enter, entered.enter->ordered().ByteSizeLong(),
                /*ends_work=*/false);
    log_.MarkSent();
    log_.Complete(1);
    log_.TakeCompleted();
    queue_.SetRoom(log_);
    replies_ = ReplyLog();
    replies_.Take(1, 0);
    answers_.table.BeginAnew(migration_->left.use());
    needed_.clear();
  }
  BeginEncoding(/*next_sequence=*/2);
  // The coordinator receives the program's graphs again, for its new worker.
  context_->TellAgain();
  return absl::OkStatus();
}

void RemoteDevice::Stay() {
  auto request = std::make_shared<v1::ControlRequest>();
  request->mutable_ordered()->mutable_migrate()->mutable_stay();
  EncodedMessages messages;
  encoder_.EncodeOther(0, std::move(request), &messages);
  Append(std::move(messages));
}

void RemoteDevice::EndMigration(absl::Status status,
                                const v1::Entered& entered) {
  v1::MigrationOutcome outcome;
  {
    MutexLock lock(&mu_);
    if (migration_ == nullptr) return;
    outcome.set_from_lease_id(migration_->request.from_lease_id());
    outcome.set_to_lease_id(migration_->request.to().lease().lease_id());
    if (migration_->waits_since.has_value()) {
      *outcome.mutable_paused() =
          ToProtoDuration(Now() - *migration_->waits_since);
    }
    migration_ = nullptr;
    connection_changed_.SignalAll();
  }
  if (status.ok()) {
    outcome.set_storage_count(entered.storage_count());
    outcome.set_moved_bytes(entered.moved_bytes());
    outcome.set_held_bytes(entered.held_bytes());
  } else {
    log::Warning("stays at its worker",
                 {{"device", index_}, {"error", status}});
    FillDetail(status, outcome.mutable_failure());
  }
  context_->link->ReportMigration(index_, std::move(outcome));
}

absl::Status RemoteDevice::AwaitMigration() {
  const Deadline deadline(context_->options.operation_timeout,
                          context_->options.clock);
  while (migration_ != nullptr) {
    if (!end_.usable()) return end_.Reason();
    if (deadline.passed()) return answers_.NoAnswer();
    WaitUntil(&connection_changed_, &mu_, deadline);
  }
  return absl::OkStatus();
}

}  // namespace djinn
