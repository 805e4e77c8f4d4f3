#include "gpu_worker/core/worker_core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "common/status_macros.h"

namespace djinn::worker {
namespace {

absl::Status Draining() {
  return MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                   "the worker stops");
}

// A coordinator that names no duration gets a short one.
constexpr absl::Duration kDefaultValidity = absl::Seconds(30);

}  // namespace

// One client's stream, before and after its Hello.
class WorkerCore::Connection : public WorkerStreamReceiver {
 public:
  Connection(WorkerCore* core, uint64_t key,
             std::unique_ptr<WorkerStream> stream, absl::Duration since)
      : core_(core), key_(key), since_(since), stream_(std::move(stream)) {}

  void OnMessage(v1::ControlRequest message) override {
    const std::shared_ptr<Session> session = this->session();
    if (session == nullptr) {
      core_->OnHello(key_, std::move(message));
    } else if (message.has_ordered()) {
      session->Receive(std::move(*message.mutable_ordered()));
    } else {
      core_->RequestClose(
          key_,
          MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                    "neither an ordered message nor the first one"));
    }
  }

  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    if (const std::shared_ptr<Session> session = this->session()) {
      session->ReceiveBulk(transfer_id, offset, pieces);
    } else {
      core_->RequestClose(
          key_, MakeError(absl::StatusCode::kInvalidArgument,
                          "PROTOCOL_VIOLATION", "bytes before the hello"));
    }
  }

  void OnRoom() override {
    if (const std::shared_ptr<Session> session = this->session()) {
      session->OnRoom();
    }
  }
  void OnBulkRoom() override {
    if (const std::shared_ptr<Session> session = this->session()) {
      session->OnBulkRoom();
    }
  }

  void OnClosed(absl::Status status) override { core_->OnClosed(key_, status); }

  std::shared_ptr<Session> session() const {
    MutexLock lock(&mu_);
    return session_;
  }
  void set_session(std::shared_ptr<Session> session) {
    MutexLock lock(&mu_);
    session_ = std::move(session);
  }

  WorkerStream* stream() const { return stream_.get(); }
  absl::Duration since() const { return since_; }

  // Guarded by the core's mutex.
  std::string lease_id;
  std::string session_id;
  bool hello_seen = false;
  bool close_requested = false;
  // Attach() still uses it.
  bool starting = true;

 private:
  WorkerCore* const core_;
  const uint64_t key_;
  const absl::Duration since_;
  mutable Mutex mu_;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);
  // Last, so that no callback runs any more when the rest goes.
  const std::unique_ptr<WorkerStream> stream_;
};

WorkerCore::WorkerCore(WorkerCoreOptions options, Device* device, Clock* clock,
                       RandomSource* random)
    : options_(std::move(options)),
      device_(device),
      clock_(clock),
      random_(random),
      incarnation_(random->NonZero64()),
      ledger_(device->memory_bytes()),
      memory_(device, &ledger_),
      graphs_(options_.graph_cache),
      contents_(options_.max_contents) {
  memory_.SetReclaimer([this](uint64_t bytes) {
    contents_.EvictIdle(bytes);
    NotifyChange();
  });
  environment_.worker_id = options_.worker_id;
  environment_.clock = clock_;
  environment_.random = random_;
  environment_.memory = &memory_;
  environment_.contents = &contents_;
  environment_.graphs = &graphs_;
  environment_.counters = &counters_;
  environment_.transfer_idle_timeout = options_.transfer_idle_timeout;
  environment_.contents_changed = [this] { NotifyChange(); };
  executor_ = std::thread([this] { RunExecutor(); });
  housekeeper_ = std::thread([this] { RunHousekeeping(); });
}

WorkerCore::~WorkerCore() { Shutdown(); }

void WorkerCore::SetChangeListener(std::function<void()> listener) {
  MutexLock lock(&listener_mu_);
  change_listener_ = std::move(listener);
}

void WorkerCore::NotifyChange() {
  std::function<void()> listener;
  {
    MutexLock lock(&listener_mu_);
    listener = change_listener_;
  }
  if (listener) listener();
}

void WorkerCore::Attach(std::unique_ptr<WorkerStream> stream) {
  Connection* connection = nullptr;
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    if (draining_) {
      refused = Draining();
    } else if (connections_.size() >= options_.max_connections) {
      refused = MakeError(absl::StatusCode::kResourceExhausted,
                          "TOO_MANY_CONNECTIONS",
                          absl::StrCat("at most ", options_.max_connections));
    } else {
      const uint64_t key = next_key_++;
      auto added = std::make_shared<Connection>(this, key, std::move(stream),
                                                clock_->Monotonic());
      connection = added.get();
      connections_.emplace(key, std::move(added));
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
  MutexLock lock(&mu_);
  DJINN_ASSIGN_OR_RETURN(const v1::LeaseRecord lease,
                         leases_.Find(hello.session_id(), hello.lease_token()));
  return lease.lease_id();
}

void WorkerCore::OnHello(uint64_t key, v1::ControlRequest message) {
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(&mu_);
    const auto found = connections_.find(key);
    if (found == connections_.end() || found->second->hello_seen) return;
    connection = found->second;
    connection->hello_seen = true;
  }
  if (!message.has_hello()) {
    return RequestClose(
        key, MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                       "the first message must be a hello"));
  }
  uint32_t version = 0;
  absl::StatusOr<std::shared_ptr<Session>> session =
      Admit(connection.get(), message.hello(), &version);
  if (!session.ok()) {
    log::Warning("client refused",
                 {{"session", log::ShortId(message.hello().session_id())},
                  {"status", session.status()}});
    return RequestClose(key, session.status());
  }
  log::Info("client attached",
            {{"session", log::ShortId(message.hello().session_id())},
             {"tenant", (*session)->tenant()}});
  v1::ControlResponse response;
  v1::WorkerHello* hello = response.mutable_hello();
  hello->set_protocol_version(version);
  hello->set_worker_id(options_.worker_id);
  hello->set_incarnation(incarnation_);
  *hello->mutable_limits() = (*session)->limits();
  (*session)->Send(std::move(response));
  NotifyChange();
}

absl::StatusOr<std::shared_ptr<Session>> WorkerCore::Admit(
    Connection* connection, const v1::ClientHello& hello, uint32_t* version) {
  DJINN_ASSIGN_OR_RETURN(
      *version,
      NegotiateProtocol(OwnProtocolWindow(), hello.protocol(), "client"));
  uint64_t key = 0;
  v1::LeaseRecord lease;
  {
    MutexLock lock(&mu_);
    DJINN_ASSIGN_OR_RETURN(
        lease, leases_.Authenticate(hello.session_id(), hello.lease_token(),
                                    hello.session_epoch()));
    if (hello.worker_incarnation() != incarnation_) {
      return MakeError(absl::StatusCode::kFailedPrecondition,
                       "WRONG_INCARNATION",
                       "the worker restarted since the lease was granted");
    }
    if (attached_.contains(lease.lease_id())) {
      return MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_IN_USE",
                       "another stream uses this lease");
    }
    for (const auto& [candidate, known] : connections_) {
      if (known.get() == connection) key = candidate;
    }
    if (key == 0 || draining_) return Draining();
    attached_.emplace(lease.lease_id(), key);
    connection->lease_id = lease.lease_id();
    connection->session_id = lease.session_id();
  }
  auto session = std::make_shared<Session>(
      &environment_, lease.tenant(), lease.limits(), connection->stream(),
      Session::Callbacks{[this, key] { MakeRunnable(key); },
                         [this, key](absl::Status status) {
                           RequestClose(key, std::move(status));
                         }});
  connection->set_session(session);
  MutexLock lock(&queue_mu_);
  queue_.Join(key);
  queued_.emplace(key, session);
  return session;
}

void WorkerCore::MakeRunnable(uint64_t key) {
  MutexLock lock(&queue_mu_);
  queue_.MakeRunnable(key);
  runnable_.Signal();
}

void WorkerCore::RequestClose(uint64_t key, absl::Status status) {
  MutexLock lock(&mu_);
  RequestCloseLocked(key, std::move(status));
}

void WorkerCore::RequestCloseLocked(uint64_t key, absl::Status status) {
  const auto found = connections_.find(key);
  if (found == connections_.end() || found->second->close_requested) return;
  found->second->close_requested = true;
  to_close_.emplace_back(key, std::move(status));
  housekeeping_.Signal();
}

void WorkerCore::OnClosed(uint64_t key, const absl::Status& status) {
  std::shared_ptr<Session> session;
  std::string session_id;
  {
    MutexLock lock(&mu_);
    const auto found = connections_.find(key);
    session = found->second->session();
    session_id = found->second->session_id;
    if (!found->second->lease_id.empty()) {
      attached_.erase(found->second->lease_id);
    }
  }
  if (session != nullptr) {
    {
      MutexLock lock(&queue_mu_);
      queue_.Leave(key);
      queued_.erase(key);
    }
    session->Drop();
    log::Info("client detached",
              {{"session", log::ShortId(session_id)}, {"status", status}});
    NotifyChange();
  }
  MutexLock lock(&mu_);
  to_reap_.push_back(key);
  housekeeping_.Signal();
}

void WorkerCore::RunExecutor() {
  for (;;) {
    uint64_t key;
    std::shared_ptr<Session> session;
    {
      MutexLock lock(&queue_mu_);
      while (!executor_stopping_ && queue_.empty()) runnable_.Wait(&queue_mu_);
      if (executor_stopping_) return;
      key = queue_.Take();
      session = queued_.at(key);
    }
    const absl::Duration start = clock_->Monotonic();
    session->Step();
    const absl::Duration used = clock_->Monotonic() - start;
    const bool more = session->HasWork();
    MutexLock lock(&queue_mu_);
    queue_.Done(key, used, more);
  }
}

void WorkerCore::RunHousekeeping() {
  for (;;) {
    while (CloseAndReap()) {
    }
    ExpireAndCheck();
    MutexLock lock(&mu_);
    if (stopping_ && connections_.empty()) return;
    if (to_close_.empty()) {
      housekeeping_.WaitWithTimeout(&mu_, options_.housekeeping_interval);
    }
  }
}

bool WorkerCore::CloseAndReap() {
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
    if (const std::shared_ptr<Session> session = connection->session()) {
      session->Detach(connection->stream());
    }
    // Here, and nowhere else, a stream is destroyed: not in its own callback.
    connection.reset();
  }
  return true;
}

void WorkerCore::ExpireAndCheck() {
  const absl::Duration now = clock_->Monotonic();
  std::vector<std::shared_ptr<Session>> sessions;
  bool changed = false;
  {
    MutexLock lock(&mu_);
    for (const std::string& lease_id : leases_.TakeExpired(now)) {
      changed = true;
      log::Warning("lease expired", {{"lease", lease_id}});
      const auto found = attached_.find(lease_id);
      if (found == attached_.end()) continue;
      RequestCloseLocked(
          found->second,
          MakeError(absl::StatusCode::kAborted, "LEASE_EXPIRED",
                    "the coordinator did not renew the lease in time"));
    }
    for (const auto& [key, connection] : connections_) {
      if (std::shared_ptr<Session> session = connection->session()) {
        sessions.push_back(std::move(session));
      } else if (now - connection->since() > options_.hello_timeout) {
        RequestCloseLocked(key,
                           MakeError(absl::StatusCode::kDeadlineExceeded,
                                     "PROTOCOL_VIOLATION", "no hello in time"));
      }
    }
  }
  for (const std::shared_ptr<Session>& session : sessions) {
    session->CheckDeadlines();
  }
  // Kept for reuse, but never most of the device: inputs that differ in every
  // run would fill it.
  const uint64_t idle = contents_.stats().idle_bytes;
  const uint64_t most = device_->memory_bytes() / 2;
  if (idle > most) {
    contents_.EvictIdle(idle - most);
    changed = true;
  }
  if (changed) NotifyChange();
}

void WorkerCore::Apply(const v1::DesiredState& desired) {
  absl::Duration validity =
      desired.has_lease_valid_for()
          ? absl::Seconds(desired.lease_valid_for().seconds()) +
                absl::Nanoseconds(desired.lease_valid_for().nanos())
          : kDefaultValidity;
  const absl::Duration expires = clock_->Monotonic() + validity;
  std::vector<absl::Status> refused;
  bool changed = false;
  {
    MutexLock lock(&mu_);
    for (const v1::LeaseRecord& record : desired.leases()) {
      changed |= !leases_.Contains(record.lease_id());
      absl::Status granted = leases_.Grant(record, expires);
      if (!granted.ok()) refused.push_back(std::move(granted));
    }
    for (const std::string& session_id : desired.drop_session_ids()) {
      for (const std::string& lease_id : leases_.TakeSession(session_id)) {
        changed = true;
        const auto found = attached_.find(lease_id);
        if (found == attached_.end()) continue;
        RequestCloseLocked(
            found->second,
            MakeError(absl::StatusCode::kAborted, "SESSION_DROPPED",
                      "the coordinator ended the session"));
      }
    }
    housekeeping_.Signal();
  }
  for (const absl::Status& status : refused) {
    log::Error("lease refused", {{"status", status}});
  }
  if (changed) NotifyChange();
}

v1::WorkerState WorkerCore::Snapshot() const {
  v1::WorkerState state;
  state.set_worker_id(options_.worker_id);
  state.set_incarnation(incarnation_);
  *state.mutable_protocol() = OwnProtocolWindow();
  state.set_device(device_->name());
  const Ledger::Usage usage = ledger_.usage();
  state.set_memory_bytes(usage.limit);
  // Idle contents give way to whoever asks.
  state.set_free_bytes(std::min(
      usage.limit, usage.limit - usage.used + contents_.stats().idle_bytes));
  for (ContentCache::Content& content : contents_.List()) {
    v1::HeldContent* held = state.add_contents();
    held->set_tenant(std::move(content.tenant));
    held->set_hash_high(content.hash.high);
    held->set_hash_low(content.hash.low);
    held->set_size_bytes(content.size_bytes);
  }
  for (const std::shared_ptr<const Plan>& plan : graphs_.List()) {
    v1::HeldGraph* held = state.add_graphs();
    held->set_fingerprint(plan->fingerprint());
    held->set_run_count(plan->runs());
  }
  uint32_t queued_runs = 0;
  {
    MutexLock lock(&mu_);
    for (v1::LeaseRecord& lease : leases_.List()) {
      v1::HeldSession* held = state.add_sessions();
      const auto found = attached_.find(lease.lease_id());
      *held->mutable_lease() = std::move(lease);
      if (found == attached_.end()) continue;
      const std::shared_ptr<Session> session =
          connections_.at(found->second)->session();
      if (session == nullptr) continue;
      held->set_storage_count(session->storage_count());
      held->set_storage_bytes(session->storage_bytes());
      queued_runs += session->queued_runs();
    }
  }
  state.set_queued_runs(queued_runs);
  return state;
}

void WorkerCore::Shutdown() {
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    draining_ = true;
    for (const auto& [key, connection] : connections_) {
      RequestCloseLocked(key, Draining());
    }
    stopping_ = true;
    housekeeping_.Signal();
  }
  housekeeper_.join();
  {
    MutexLock lock(&queue_mu_);
    executor_stopping_ = true;
    runnable_.SignalAll();
  }
  executor_.join();
}

}  // namespace djinn::worker
