#include "gpu_worker/streams/stream_table.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "gpu_worker/leases/lease_turn.h"
#include "gpu_worker/session/observe/session_metrics.h"
#include "gpu_worker/store/device_memory.h"
#include "gpu_worker/store/quota.h"
#include "gpu_worker/streams/connection.h"

namespace djinn::worker {
namespace {

// A client whose process and network live resumes a session within this time.
// The table keeps a session no longer if the transport saw the process end, and
// otherwise as long as no other session needs the memory.
constexpr absl::Duration kReturnTime = absl::Seconds(1);

}  // namespace

StreamTable::StreamTable(Options options, const SessionEnvironment* environment,
                         Device* device, LeaseKeeper* leases, TurnQueue* queue,
                         std::function<void()> changed)
    : options_(std::move(options)),
      clock_(*environment->clock),
      device_(*device),
      ledger_(*environment->memory->ledger()),
      leases_(*leases),
      queue_(*queue),
      session_metrics_(*environment->metrics),
      changed_(std::move(changed)),
      factory_(environment, queue,
               [this](const std::string& tenant, uint64_t missing) {
                 return EndLostOf(tenant, missing);
               }) {}

StreamTable::~StreamTable() = default;

void StreamTable::Attach(std::unique_ptr<WorkerStream> stream, StreamWay way) {
  Connection* connection = nullptr;
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    if (!draining_.ok()) {
      refused = draining_;
    } else if (connections_.size() >= options_.max_connections &&
               !MakeRoomLocked()) {
      refused = TooManyConnections();
    } else {
      const uint64_t key = next_key_++;
      auto added = std::make_shared<Connection>(this, key, std::move(stream),
                                                way, clock_.Monotonic());
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
  if (!to_reap_.empty()) work_.Signal();
}

uint64_t StreamTable::ApplyLease(const std::string& lease_id) {
  MutexLock lock(&mu_);
  // Finds the newest revision, which a client may have presented meanwhile.
  const std::optional<Lease> lease = leases_.Find(lease_id);
  if (!lease.has_value()) return 0;
  factory_.UpdateTenant(lease->claims);
  const auto found = sessions_.find(lease_id);
  if (found == sessions_.end()) return 0;
  Session* const session = found->second.session.get();
  factory_.Update(lease->claims, found->second.queue_key, session);
  if (!lease->meter->waiting() || !lease->meter->HasCredit()) return 0;
  session->log().EnterWithCredit(clock_.Monotonic());
  return found->second.queue_key;
}

void StreamTable::EndLease(const std::string& lease_id,
                           const absl::Status& why) {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&mu_);
    if (!sessions_.contains(lease_id)) return;
    session = TakeSessionLocked(lease_id, why);
  }
  session->Drop();
}

bool StreamTable::CheckDeadlines() {
  const absl::Duration now = clock_.Monotonic();
  std::vector<std::shared_ptr<Session>> sessions;
  std::vector<std::shared_ptr<Session>> ended;
  bool any_lost = false;
  {
    MutexLock lock(&mu_);
    std::vector<std::string> given_up;
    for (auto& [lease_id, held] : sessions_) {
      const absl::Duration away =
          held.connection == 0 ? now - held.detached_since : -absl::Seconds(1);
      if (away >= held.resume_timeout) {
        given_up.push_back(lease_id);
        continue;
      }
      sessions.push_back(held.session);
      if (away >= kReturnTime && !std::exchange(held.lost, true)) {
        any_lost = true;
      }
    }
    for (const std::string& lease_id : given_up) {
      log::Warning("client did not come back", {{"lease", lease_id}});
      ended.push_back(TakeSessionLocked(lease_id, absl::OkStatus()));
    }
    for (const auto& [key, connection] : connections_) {
      if (connection->lease_id.empty() && !connection->close_requested &&
          now - connection->since() > options_.hello_timeout) {
        absl::Status silent =
            MakeError(absl::StatusCode::kDeadlineExceeded, "PROTOCOL_VIOLATION",
                      "no hello in time");
        log::Warning("client refused", {{"status", silent}});
        RequestCloseLocked(key, std::move(silent));
      }
    }
  }
  for (const std::shared_ptr<Session>& session : ended) session->Drop();
  for (const std::shared_ptr<Session>& session : sessions) {
    session->CheckDeadlines();
  }
  return any_lost || !ended.empty();
}

bool StreamTable::EndLost(uint64_t missing) {
  // Any of the memory that is not storages' may be theirs.
  const uint64_t transfers =
      ledger_.usage().by_class[static_cast<size_t>(MemoryClass::kTransfers)];
  return EndOldestLost(missing, transfers, [](const Session&) { return true; });
}

bool StreamTable::EndLostOf(const std::string& tenant, uint64_t missing) {
  return EndOldestLost(missing, /*besides=*/0, [&](const Session& session) {
    return session.who().tenant == tenant;
  });
}

bool StreamTable::EndOldestLost(
    uint64_t missing, uint64_t besides,
    absl::FunctionRef<bool(const Session&)> may_end) {
  std::shared_ptr<Session> session;
  // At most what the end of all of them frees.
  uint64_t most = besides;
  {
    MutexLock lock(&mu_);
    const std::string* oldest = nullptr;
    absl::Duration since = absl::InfiniteDuration();
    for (const auto& [lease_id, held] : sessions_) {
      // A session that executes a message may be the one that needs memory.
      if (!held.lost || held.session->executing() || !may_end(*held.session)) {
        continue;
      }
      most += held.session->quota().used();
      if (held.detached_since >= since) continue;
      oldest = &lease_id;
      since = held.detached_since;
    }
    if (oldest == nullptr || most < missing) return false;
    log::Warning("a session without a client gives its memory to others",
                 {{"lease", *oldest}, {"away", clock_.Monotonic() - since}});
    session = TakeSessionLocked(std::string(*oldest), absl::OkStatus());
  }
  session->Drop();
  changed_();
  return true;
}

bool StreamTable::CloseAndReap() {
  std::vector<std::pair<std::shared_ptr<Connection>, absl::Status>> closing;
  std::vector<std::shared_ptr<Connection>> dead;
  {
    MutexLock lock(&mu_);
    for (auto& [key, status] : to_close_) {
      const auto found = connections_.find(key);
      if (found != connections_.end()) {
        closing.emplace_back(found->second, std::move(status));
      }
    }
    to_close_.clear();
    std::vector<uint64_t> later;
    for (const uint64_t key : to_reap_) {
      const auto found = connections_.find(key);
      if (found->second->starting) {
        later.push_back(key);
        continue;
      }
      dead.push_back(std::move(found->second));
      connections_.erase(found);
    }
    to_reap_ = std::move(later);
  }
  if (closing.empty() && dead.empty()) return false;
  for (auto& [connection, status] : closing) {
    connection->stream()->Close(std::move(status));
  }
  closing.clear();
  for (std::shared_ptr<Connection>& connection : dead) {
    connection->Detach();
    // This thread, or the executor thread that received from it, destroys the
    // stream: never the stream's own callback.
    connection.reset();
  }
  return true;
}

bool StreamTable::AwaitWork(absl::Duration timeout) {
  MutexLock lock(&mu_);
  if (!draining_.ok() && connections_.empty()) return false;
  if (to_close_.empty()) work_.WaitWithTimeout(&mu_, timeout);
  return true;
}

void StreamTable::Shutdown(const absl::Status& why) {
  std::vector<std::shared_ptr<Session>> ended;
  {
    MutexLock lock(&mu_);
    draining_ = why;
    while (!sessions_.empty()) {
      const std::string lease_id = sessions_.begin()->first;
      ended.push_back(TakeSessionLocked(lease_id, why));
    }
    for (const auto& [key, connection] : connections_) {
      RequestCloseLocked(key, why);
    }
    work_.Signal();
  }
  for (const std::shared_ptr<Session>& session : ended) session->Drop();
}

bool StreamTable::draining() const {
  MutexLock lock(&mu_);
  return !draining_.ok();
}

std::optional<StreamTable::Entry> StreamTable::Find(
    const std::string& lease_id) const {
  MutexLock lock(&mu_);
  const auto found = sessions_.find(lease_id);
  if (found == sessions_.end()) return std::nullopt;
  const Held& held = found->second;
  return Entry{held.session, held.queue_key, held.connection != 0, held.lost};
}

StreamTable::SessionMap StreamTable::Sessions() const {
  SessionMap sessions;
  MutexLock lock(&mu_);
  for (const auto& [lease_id, held] : sessions_) {
    sessions[lease_id] = {held.session, held.queue_key, held.connection != 0,
                          held.lost};
  }
  return sessions;
}

bool StreamTable::Busy(const std::string& session_id) const {
  MutexLock lock(&mu_);
  return absl::c_any_of(sessions_, [&](const auto& entry) {
    Session& session = *entry.second.session;
    return session.who().session_id == session_id && session.busy();
  });
}

size_t StreamTable::detached_sessions() const {
  MutexLock lock(&mu_);
  return static_cast<size_t>(absl::c_count_if(sessions_, [](const auto& entry) {
    return entry.second.connection == 0;
  }));
}

void StreamTable::Collect(Exposition* out) const {
  recoveries_.Collect(out);
  out->Histogram(
      "djinn_recovery_duration_seconds",
      "Time from the loss of a peer until it was back, or a stage of it.",
      resumed_streams_, {{"kind", "stream_resumed"}, {"stage", "total"}});
  MutexLock lock(&mu_);
  out->Gauge("djinn_worker_connections", "Streams of clients.",
             static_cast<double>(connections_.size()));
}

void StreamTable::EndSession(const std::string& lease_id, uint64_t queue_key,
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
  changed_();
}

std::shared_ptr<Session> StreamTable::TakeSessionLocked(
    const std::string& lease_id, const absl::Status& status) {
  const auto found = sessions_.find(lease_id);
  const Held held = std::move(found->second);
  // Stops the session before any thread can see that it is gone.
  held.session->Stop();
  sessions_.erase(found);
  if (held.connection != 0) RequestCloseLocked(held.connection, status);
  queue_.Leave(held.queue_key);
  return held.session;
}

void StreamTable::RequestClose(uint64_t key, absl::Status status) {
  MutexLock lock(&mu_);
  RequestCloseLocked(key, std::move(status));
}

void StreamTable::RequestCloseLocked(uint64_t key, absl::Status status) {
  const auto found = connections_.find(key);
  if (found == connections_.end() || found->second->close_requested) return;
  found->second->close_requested = true;
  silent_.erase(key);
  to_close_.emplace_back(key, std::move(status));
  work_.Signal();
}

bool StreamTable::MakeRoomLocked() {
  if (silent_.empty() ||
      connections_.size() >= 2 * uint64_t{options_.max_connections}) {
    return false;
  }
  RequestCloseLocked(*silent_.begin(), TooManyConnections());
  return true;
}

absl::Status StreamTable::TooManyConnections() const {
  return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_CONNECTIONS",
                   absl::StrCat("at most ", options_.max_connections));
}

void StreamTable::OnClosed(uint64_t key, const absl::Status& status) {
  // The connection lives until it is reaped. This callback must not hold a
  // reference beyond that, because no stream may be destroyed in its own
  // callback.
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
      held.detached_since = clock_.Monotonic();
      // Neither side ended the stream: the network did, or the client's end.
      const bool gone = ErrorReason(status) == "CLIENT_GONE";
      resumable = !status.ok() && (gone || ErrorReason(status).empty()) &&
                  !held.session->status().cancelled;
      held.resume_timeout = gone
                                ? std::min(kReturnTime, options_.resume_timeout)
                                : options_.resume_timeout;
      if (!resumable) ended = TakeSessionLocked(connection->lease_id, status);
    }
    session_id = connection->session_id;
    silent_.erase(key);
    to_reap_.push_back(key);
    work_.Signal();
  }
  if (!served) return;
  log::Info("client detached", {{"session", log::ShortId(session_id)},
                                {"status", status},
                                {"resumable", resumable}});
  if (ended == nullptr) return;
  ended->Drop();
  changed_();
}

}  // namespace djinn::worker
