// Client streams: Hellos, the sessions they lead to, and their ends.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "common/status_macros.h"
#include "gpu_worker/core/connection.h"
#include "gpu_worker/core/lease_turn.h"
#include "gpu_worker/core/worker_core.h"

namespace djinn::worker {

void WorkerCore::Attach(std::unique_ptr<WorkerStream> stream, StreamWay way) {
  Connection* connection = nullptr;
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    if (draining_) {
      refused = Draining();
    } else if (connections_.size() >= options_.max_connections &&
               !MakeRoomLocked()) {
      refused = TooManyConnections();
    } else {
      const uint64_t key = next_key_++;
      auto added = std::make_shared<Connection>(this, key, std::move(stream),
                                                way, clock_->Monotonic());
      connection = added.get();
      connections_.emplace(key, std::move(added));
      silent_.insert(key);
    }
  }
  if (!refused.ok()) {
    stream->Close(std::move(refused));
    return;
  }
  connection->stream()->Start(connection);
  MutexLock lock(&mu_);
  connection->starting = false;
  if (!to_reap_.empty()) housekeeping_.Signal();
}

absl::StatusOr<std::string> WorkerCore::LeaseOf(
    const v1::BulkHello& hello) const {
  DJINN_ASSIGN_OR_RETURN(const v1::SignedLease issue,
                         ParseLeaseToken(hello.lease_token()));
  DJINN_ASSIGN_OR_RETURN(const v1::LeaseClaims claims, ClaimsOf(issue));
  MutexLock lock(&mu_);
  const Lease* const lease = leases_.Find(claims.lease_id());
  if (lease == nullptr || claims.session_id() != hello.session_id() ||
      lease->claims.session_id() != hello.session_id()) {
    return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_UNKNOWN",
                     "no stream of this session presented such a lease");
  }
  return claims.lease_id();
}

void WorkerCore::Pull(const v1::PullRequest& request,
                      std::shared_ptr<OfferClaimant> claimant) {
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    if (draining_) {
      refused = Draining();
    } else if (request.worker_incarnation() != incarnation_) {
      refused =
          MakeError(absl::StatusCode::kFailedPrecondition, "WRONG_INCARNATION",
                    "the worker restarted since the bytes were offered");
    } else if (!OfferTable::IsTicket(request.ticket()) ||
               !leases_.HasSession(request.session_id())) {
      refused = OfferTable::Unknown();
    }
  }
  if (!refused.ok()) return claimant->Refuse(std::move(refused));
  offers_.Claim(request, std::move(claimant));
}

SendUrgency WorkerCore::UrgencyOf(const std::string& session_id) const {
  MutexLock lock(&mu_);
  for (const auto& [lease_id, lease] : leases_.all()) {
    if (lease.claims.session_id() != session_id) continue;
    // Whatever its runs are, others wait for the value.
    const int priority = PriorityOf(lease.claims.urgency().priority_class(),
                                    v1::PHASE_UNSPECIFIED);
    return {lease.claims.tenant(), priority,
            clock_->Monotonic() + RunDeadlineOf(lease.claims)};
  }
  return {};
}

OfferTable::Activity WorkerCore::ActivityOf(
    const std::string& session_id) const {
  MutexLock lock(&mu_);
  if (!leases_.HasSession(session_id)) return OfferTable::Activity::kGone;
  for (const auto& [lease_id, held] : sessions_) {
    if (held.session->session_id() == session_id && held.session->busy()) {
      return OfferTable::Activity::kBusy;
    }
  }
  return OfferTable::Activity::kIdle;
}

void WorkerCore::OnHello(uint64_t key, v1::ControlRequest message) {
  {
    MutexLock lock(&mu_);
    const auto found = connections_.find(key);
    if (found == connections_.end() || found->second->hello_seen) return;
    found->second->hello_seen = true;
    silent_.erase(key);
  }
  absl::Status admitted =
      message.has_hello() && message.following_size() == 0
          ? Admit(key, message.hello())
          : MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                      "the first message must be a hello by itself");
  if (admitted.ok()) {
    if (message.hello().has_resume()) {
      metrics_.recoveries.Add({"stream_resumed"});
    }
    return NotifyChange();
  }
  // Whose session it was nobody has shown.
  metrics_.rejections.Add({"", ErrorReason(admitted)});
  log::Warning("client refused",
               {{"session", log::ShortId(message.hello().session_id())},
                {"status", admitted}});
  RequestClose(key, std::move(admitted));
}

absl::Status WorkerCore::Admit(uint64_t key, const v1::ClientHello& hello) {
  DJINN_RETURN_IF_ERROR(
      CheckProtocolVersion(hello.protocol_version(), "client"));
  DJINN_ASSIGN_OR_RETURN(const v1::SignedLease issue,
                         ParseLeaseToken(hello.lease_token()));
  DJINN_ASSIGN_OR_RETURN(const v1::LeaseClaims claims, ClaimsOf(issue));
  DJINN_ASSIGN_OR_RETURN(const uint64_t generator_bytes,
                         device_->operators()->GeneratorBytes());
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Session> session;
  uint64_t stream_number = 0;
  {
    MutexLock lock(&mu_);
    DJINN_ASSIGN_OR_RETURN(const Lease* lease,
                           leases_.Present(issue, claims, hello.session_id(),
                                           hello.session_epoch(), Now()));
    if (hello.worker_incarnation() != incarnation_) {
      return MakeError(absl::StatusCode::kFailedPrecondition,
                       "WRONG_INCARNATION",
                       "the worker restarted since the lease was granted");
    }
    const auto found = connections_.find(key);
    if (found == connections_.end() || draining_) return Draining();
    connection = found->second;
    DJINN_ASSIGN_OR_RETURN(session, FindOrMakeSession(key, hello, *lease));
    stream_number = ++last_stream_;
    connection->lease_id = lease->claims.lease_id();
    connection->session_id = lease->claims.session_id();
    connection->Serve(session, stream_number);
    MutexLock queue_lock(&queue_mu_);
    const auto queued =
        queued_.find(sessions_.at(connection->lease_id).queue_key);
    if (queued != queued_.end()) queued->second.connection = connection;
  }
  log::Info("client attached", {{"session", log::ShortId(hello.session_id())},
                                {"tenant", session->tenant()},
                                {"resumed", hello.has_resume()}});
  v1::WorkerHello answer;
  answer.set_worker_id(options_.worker_id);
  answer.set_incarnation(incarnation_);
  *answer.mutable_limits() = session->limits();
  // More than there is at all is no room.
  answer.mutable_limits()->set_memory_bytes(
      std::min(session->limits().memory_bytes(), device_->memory_bytes()));
  if (options_.speed.flops_per_second() > 0) {
    *answer.mutable_speed() = options_.speed;
  }
  answer.set_numerics(options_.numerics);
  answer.set_generator_bytes(static_cast<uint32_t>(generator_bytes));
  session->Attach(connection->stream(), stream_number, std::move(answer),
                  hello.resume().acknowledged_reply(), connection->way());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Session>> WorkerCore::FindOrMakeSession(
    uint64_t key, const v1::ClientHello& hello, const Lease& lease) {
  const std::string& lease_id = lease.claims.lease_id();
  const auto found = sessions_.find(lease_id);
  if (found == sessions_.end()) {
    if (hello.has_resume()) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_LOST",
                       "this worker holds nothing of the session any more");
    }
    if (lease.in_force <= clock_->Monotonic()) {
      return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_EXPIRED",
                       "the coordinator is away, and in the lease's grace "
                       "period no session begins");
    }
    const uint64_t queue_key = next_key_++;
    std::shared_ptr<Session> session = MakeSession(lease, queue_key);
    sessions_[lease_id] = {session, queue_key, key, {}};
    return session;
  }
  Held& held = found->second;
  if (hello.has_resume()) {
    DJINN_RETURN_IF_ERROR(held.session->CheckResume(hello.resume()));
  } else if (held.session->received_any()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_IN_USE",
                     "the lease has a session here already");
  }
  if (held.connection > key) {
    // The network kept this one back.
    return MakeError(absl::StatusCode::kAborted, "STREAM_REPLACED",
                     "a newer stream took the session up meanwhile");
  }
  if (held.connection != 0) {
    connections_.at(held.connection)->Replace();
    RequestCloseLocked(held.connection,
                       MakeError(absl::StatusCode::kAborted, "STREAM_REPLACED",
                                 "a newer stream resumed the session"));
  }
  // Of one that was not seen to break nobody knows since when it was.
  if (held.connection == 0 && hello.has_resume()) {
    metrics_.resumed_streams.Observe(clock_->Monotonic() - held.detached_since);
  }
  held.connection = key;
  return held.session;
}

std::shared_ptr<Session> WorkerCore::MakeSession(const Lease& lease,
                                                 uint64_t queue_key) {
  const v1::LeaseClaims& claims = lease.claims;
  auto session = std::make_shared<Session>(
      &environment_, claims.session_id(), claims.tenant(), AccountOf(claims),
      std::shared_ptr<Traffic>(lease.meter, lease.meter->traffic()),
      claims.limits(),
      Session::Callbacks{
          [this, queue_key] { MakeRunnable(queue_key); },
          [this, lease_id = claims.lease_id(), queue_key](absl::Status status) {
            EndSession(lease_id, queue_key, status);
          },
          [this, meter = lease.meter](absl::Duration used) {
            metrics_.proofs.fetch_add(
                static_cast<uint64_t>(absl::ToInt64Nanoseconds(used)),
                std::memory_order_relaxed);
            if (meter->Add(v1::PHASE_UNSPECIFIED, used)) NotifyChange();
          },
          [meter = lease.meter] { return meter->device_time(); },
          [this, queue_key](v1::Phase phase) { NotePhase(queue_key, phase); },
          [this, queue_key, tenant = claims.tenant()](RunInTime result) {
            CountInTime(queue_key, tenant, result);
          },
          [this, label = metrics_.tenants.For(claims.tenant()),
           succeeded = metrics_.requests.SucceededOf(metrics_.tenants.For(
               claims.tenant()))](const Session::RunOver& over) {
            metrics_.request_duration.Observe(over.took);
            if (over.code == absl::StatusCode::kOk) {
              (*succeeded)[over.phase].fetch_add(1, std::memory_order_relaxed);
            } else {
              metrics_.requests.AddFailed(label, over.phase, over.code);
            }
          },
          [this](const ResultTimes::Result& result) {
            (result.first ? metrics_.first_result : metrics_.next_result)
                .Observe(result.took);
          }});
  session->SetRunDeadline(RunDeadlineOf(claims));
  MutexLock lock(&queue_mu_);
  const v1::PriorityClass declared = claims.urgency().priority_class();
  queue_.Join(queue_key, claims.tenant(), WeightOf(claims),
              PriorityOf(declared, session->phase()));
  queued_.emplace(queue_key, Queued{session, lease.meter, {}, declared});
  return session;
}

std::shared_ptr<TenantAccount> WorkerCore::AccountOf(
    const v1::LeaseClaims& lease) {
  std::shared_ptr<TenantAccount> account = accounts_[lease.tenant()].lock();
  if (account == nullptr) {
    absl::erase_if(accounts_,
                   [](const auto& entry) { return entry.second.expired(); });
    account = std::make_shared<TenantAccount>();
    accounts_[lease.tenant()] = account;
  }
  if (lease.has_tenant_limits()) account->SetLimits(lease.tenant_limits());
  return account;
}

void WorkerCore::EndSession(const std::string& lease_id, uint64_t queue_key,
                            const absl::Status& status) {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&mu_);
    const auto found = sessions_.find(lease_id);
    if (found == sessions_.end() || found->second.queue_key != queue_key) {
      return;
    }
    session = TakeSessionLocked(lease_id, status);
  }
  log::Warning("session ended", {{"lease", lease_id}, {"status", status}});
  session->Drop();
  NotifyChange();
}

std::shared_ptr<Session> WorkerCore::TakeSessionLocked(
    const std::string& lease_id, const absl::Status& status) {
  const auto found = sessions_.find(lease_id);
  const Held held = std::move(found->second);
  // Before anybody can see that it is gone.
  held.session->Stop();
  sessions_.erase(found);
  if (held.connection != 0) RequestCloseLocked(held.connection, status);
  MutexLock lock(&queue_mu_);
  queue_.Leave(held.queue_key);
  forecast_.Forget(held.queue_key);
  queued_.erase(held.queue_key);
  // A turn may be waiting for it.
  runnable_.Signal();
  return held.session;
}

bool WorkerCore::MakeRoomLocked() {
  if (silent_.empty() ||
      connections_.size() >= 2 * uint64_t{options_.max_connections}) {
    return false;
  }
  RequestCloseLocked(*silent_.begin(), TooManyConnections());
  return true;
}

absl::Status WorkerCore::TooManyConnections() const {
  return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_CONNECTIONS",
                   absl::StrCat("at most ", options_.max_connections));
}

void WorkerCore::RequestClose(uint64_t key, absl::Status status) {
  MutexLock lock(&mu_);
  RequestCloseLocked(key, std::move(status));
}

void WorkerCore::RequestCloseLocked(uint64_t key, absl::Status status) {
  const auto found = connections_.find(key);
  if (found == connections_.end() || found->second->close_requested) return;
  found->second->close_requested = true;
  silent_.erase(key);
  to_close_.emplace_back(key, std::move(status));
  housekeeping_.Signal();
}

size_t WorkerCore::detached_sessions() const {
  MutexLock lock(&mu_);
  size_t count = 0;
  for (const auto& [lease_id, held] : sessions_) count += held.connection == 0;
  return count;
}

void WorkerCore::OnClosed(uint64_t key, const absl::Status& status) {
  // Lives until it is reaped below; nobody may destroy a stream in its own
  // callback, so nothing here may keep it longer.
  Connection* connection = nullptr;
  {
    MutexLock lock(&mu_);
    connection = connections_.at(key).get();
  }
  connection->Detach();
  const bool served = connection->service().session != nullptr;
  std::shared_ptr<Session> ended;
  std::string session_id;
  bool resumable = false;
  {
    MutexLock lock(&mu_);
    const auto found = sessions_.find(connection->lease_id);
    if (found != sessions_.end() && found->second.connection == key) {
      Held& held = found->second;
      held.connection = 0;
      held.detached_since = clock_->Monotonic();
      // Neither side ended it: the network did.
      resumable = !status.ok() && ErrorReason(status).empty() &&
                  !held.session->cancelled();
      if (!resumable) ended = TakeSessionLocked(connection->lease_id, status);
    }
    session_id = connection->session_id;
    silent_.erase(key);
    to_reap_.push_back(key);
    housekeeping_.Signal();
  }
  if (!served) return;
  log::Info("client detached", {{"session", log::ShortId(session_id)},
                                {"status", status},
                                {"resumable", resumable}});
  if (ended == nullptr) return;
  ended->Drop();
  NotifyChange();
}

}  // namespace djinn::worker
