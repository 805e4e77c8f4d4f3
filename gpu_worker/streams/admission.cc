// Admits a client's stream: checks its Hello and its lease, and finds or makes
// the session that the stream serves.
#include <algorithm>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/session/observe/session_metrics.h"
#include "gpu_worker/streams/connection.h"
#include "gpu_worker/streams/stream_table.h"

namespace djinn::worker {

void StreamTable::Connection::OnMessage(v1::ControlRequest message) {
  const Service service = this->service();
  if (service.session == nullptr) {
    table_->OnHello(key_, std::move(message));
  } else if (!service.replaced) {
    service.session->Receive(std::move(message));
  }
}

void StreamTable::OnHello(uint64_t key, v1::ControlRequest message) {
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
      recoveries_.Add({"stream_resumed", "done"});
    }
    return changed_();
  }
  // The tenant label is empty, because the client has not shown which tenant it
  // is.
  session_metrics_.rejections.Add({"", ErrorReason(admitted)});
  log::Warning("client refused",
               {{"session", log::ShortId(message.hello().session_id())},
                {"status", admitted}});
  RequestClose(key, std::move(admitted));
}

absl::Status StreamTable::Admit(uint64_t key, const v1::ClientHello& hello) {
  DJINN_RETURN_IF_ERROR(
      CheckProtocolVersion(hello.protocol_version(), "client"));
  DJINN_ASSIGN_OR_RETURN(const v1::SignedLease signed_lease,
                         ParseLeaseToken(hello.lease_token()));
  DJINN_ASSIGN_OR_RETURN(const v1::LeaseClaims claims,
                         leases_.ClaimsOf(signed_lease));
  DJINN_ASSIGN_OR_RETURN(const uint64_t generator_bytes,
                         device_.operators()->GeneratorBytes());
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Session> session;
  uint64_t stream_number = 0;
  {
    // Held until the session is in the table, so that the end of its lease
    // finds it there.
    MutexLock lock(&mu_);
    DJINN_ASSIGN_OR_RETURN(
        const Lease lease,
        leases_.Present(signed_lease, claims, hello.session_id(),
                        hello.session_epoch()));
    if (hello.worker_incarnation() != options_.incarnation) {
      return MakeError(absl::StatusCode::kFailedPrecondition,
                       "WRONG_INCARNATION",
                       "the worker restarted since the lease was granted");
    }
    DJINN_RETURN_IF_ERROR(draining_);
    const auto found = connections_.find(key);
    if (found == connections_.end()) return absl::CancelledError("closed");
    connection = found->second;
    DJINN_ASSIGN_OR_RETURN(session, FindOrMakeSession(key, hello, lease));
    stream_number = ++last_stream_;
    connection->lease_id = lease.claims.lease_id();
    connection->session_id = lease.claims.session_id();
    connection->Serve(session, stream_number);
    queue_.SetStream(
        sessions_.at(connection->lease_id).queue_key,
        std::shared_ptr<WorkerStream>(connection, connection->stream()));
  }
  log::Info("client attached", {{"session", log::ShortId(hello.session_id())},
                                {"tenant", session->who().tenant},
                                {"resumed", hello.has_resume()}});
  v1::WorkerHello answer = Answer(*session);
  answer.set_generator_bytes(static_cast<uint32_t>(generator_bytes));
  session->Attach(connection->stream(), stream_number, std::move(answer),
                  hello.resume().acknowledged_reply(), connection->way());
  return absl::OkStatus();
}

v1::WorkerHello StreamTable::Answer(const Session& session) const {
  v1::WorkerHello answer;
  answer.set_worker_id(options_.worker_id);
  answer.set_incarnation(options_.incarnation);
  *answer.mutable_limits() = session.who().limits;
  // A session cannot use more memory than the device has.
  answer.mutable_limits()->set_memory_bytes(
      std::min(session.who().limits.memory_bytes(), device_.memory_bytes()));
  if (options_.speed.flops_per_second() > 0) {
    *answer.mutable_speed() = options_.speed;
  }
  answer.set_numerics(options_.numerics);
  answer.set_executor_per_tenant(options_.executor_per_tenant);
  return answer;
}

absl::StatusOr<std::shared_ptr<Session>> StreamTable::FindOrMakeSession(
    uint64_t key, const v1::ClientHello& hello, const Lease& lease) {
  const std::string& lease_id = lease.claims.lease_id();
  const auto found = sessions_.find(lease_id);
  if (found == sessions_.end()) {
    if (hello.has_resume()) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_LOST",
                       "this worker holds nothing of the session any more");
    }
    if (lease.in_force <= clock_.Monotonic()) {
      return MakeError(absl::StatusCode::kUnauthenticated, "LEASE_EXPIRED",
                       "the coordinator is away, and in the lease's grace "
                       "period no session begins");
    }
    const uint64_t queue_key = next_key_++;
    std::shared_ptr<Session> session = factory_.Make(
        lease, queue_key, [this, lease_id, queue_key](absl::Status status) {
          EndSession(lease_id, queue_key, status);
        });
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
    // The network delayed this stream.
    return MakeError(absl::StatusCode::kAborted, "STREAM_REPLACED",
                     "a newer stream took the session up meanwhile");
  }
  if (held.connection != 0) {
    connections_.at(held.connection)->Replace();
    RequestCloseLocked(held.connection,
                       MakeError(absl::StatusCode::kAborted, "STREAM_REPLACED",
                                 "a newer stream resumed the session"));
  }
  // A stream whose break went unnoticed has no such moment.
  if (held.connection == 0 && hello.has_resume()) {
    resumed_streams_.Observe(clock_.Monotonic() - held.detached_since);
  }
  held.connection = key;
  held.lost = false;
  return held.session;
}

}  // namespace djinn::worker
