#include "gpu_worker/pull/shared_memory_peers.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/transport/shared_memory/shared_memory_end.h"
#include "common/transport/shared_memory/shared_region.h"

namespace djinn::worker {
namespace {

// How long the other worker may take to send its greeting.
constexpr absl::Duration kGreetingTimeout = absl::Seconds(2);
// How often a thread that waits for bytes checks whether it still should.
constexpr absl::Duration kLook = absl::Seconds(1);
// Answers hold a few words or a root error; values travel as bulk chunks.
constexpr size_t kMaxAnswerBytes = size_t{1} << 20;

absl::StatusOr<SharedConnection> Dial(const std::string& path,
                                      uint64_t incarnation) {
  DJINN_ASSIGN_OR_RETURN(Descriptor socket, DialSharedMemory(path));
  DJINN_RETURN_IF_ERROR(CheckSameUser(socket.get()));
  DJINN_ASSIGN_OR_RETURN(Descriptor wake, MakeEvent());
  DJINN_ASSIGN_OR_RETURN(
      SharedConnection connection,
      SharedConnection::Accept(std::move(socket), incarnation, wake.get(),
                               kGreetingTimeout));
  connection.wake = std::move(wake);
  return connection;
}

// Returns whether the error is permanent: the worker is on another machine, or
// another user's, or another incarnation. Any other error may pass.
bool IsForGood(const absl::Status& why) {
  return absl::IsNotFound(why) || absl::IsPermissionDenied(why) ||
         absl::IsFailedPrecondition(why) || absl::IsInvalidArgument(why);
}

}  // namespace

// A connection that carries one call at a time.
class SharedMemoryPeers::Connection : public SharedMemoryEnd::Handler {
 public:
  explicit Connection(SharedConnection connection)
      : end_(SharedSide::kClient, {.max_message_bytes = kMaxAnswerBytes},
             std::move(connection)) {
    end_.Start(/*open=*/nullptr, this);
  }

  absl::StatusOr<std::optional<v1::ErrorDetail>> Fetch(
      const v1::PullRequest& request, PullReceiver* receiver) {
    {
      MutexLock lock(&mu_);
      over_ = closed_;
      failure_ = closed_ ? HungUp() : absl::OkStatus();
      receiver_ = receiver;
      size_ = request.size_bytes();
      received_ = 0;
      ++number_;
    }
    // An error that prevents sending also closes the connection.
    end_.SendAndWait(request.SerializeAsString()).IgnoreError();
    const auto over = [this] {
      MutexLock lock(&mu_);
      return over_;
    };
    while (!over()) {
      if (end_.Lead(over, kLook)) continue;
      MutexLock lock(&mu_);
      if (!over_) changed_.WaitWithTimeout(&mu_, kLook);
    }
    MutexLock lock(&mu_);
    receiver_ = nullptr;
    DJINN_RETURN_IF_ERROR(failure_);
    return std::exchange(poison_, std::nullopt);
  }
  void Cancel() {
    {
      // Cancel() may come between the call's last byte and its end, and the
      // handler learns of the end even after the peer has said goodbye.
      MutexLock lock(&mu_);
      cancelled_ = true;
    }
    end_.Close(absl::CancelledError("given up"));
  }
  // Closes the connection between two calls.
  void Close() { end_.Close(absl::OkStatus()); }
  // Returns whether the connection can carry another call.
  bool usable() const {
    MutexLock lock(&mu_);
    return !closed_ && !cancelled_ && failure_.ok();
  }

  absl::Status OnBytes(absl::string_view message) override {
    v1::PullResponse response;
    if (!response.ParseFromArray(message.data(),
                                 static_cast<int>(message.size()))) {
      return BrokenByPeer("bytes that are no message");
    }
    PullReceiver* receiver;
    {
      MutexLock lock(&mu_);
      if (over_ || receiver_ == nullptr) return absl::OkStatus();
      receiver = receiver_;
      if (response.has_poisoned()) {
        poison_ = std::move(*response.mutable_poisoned());
        End(absl::OkStatus());
        return absl::OkStatus();
      }
    }
    if (!response.has_waiting()) return BrokenByPeer("an answer to nothing");
    receiver->OnWaiting();
    return absl::OkStatus();
  }

  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    PullReceiver* receiver;
    {
      MutexLock lock(&mu_);
      if (over_ || receiver_ == nullptr) return;
      receiver = receiver_;
      uint64_t bytes = 0;
      for (const absl::string_view piece : pieces) bytes += piece.size();
      if (transfer_id != number_ || offset != received_ || bytes == 0 ||
          bytes > size_ - received_) {
        return End(
            BrokenByPeer(absl::StrCat("expected bytes at ", received_, " of ",
                                      size_, ", got ", bytes, " at ", offset)));
      }
    }
    // Only this thread, which has the receiver's role, ends the call.
    absl::Status taken;
    for (const absl::string_view piece : pieces) {
      taken = receiver->OnBytes(offset, piece);
      if (!taken.ok()) break;
      offset += piece.size();
    }
    MutexLock lock(&mu_);
    received_ = offset;
    if (!taken.ok() || received_ == size_) End(std::move(taken));
  }

  void OnClosed(absl::Status status) override {
    MutexLock lock(&mu_);
    closed_ = true;
    // The other worker refused the call or ended the connection.
    if (!over_) End(status.ok() ? HungUp() : std::move(status));
  }

 private:
  static absl::Status HungUp() {
    return absl::UnavailableError("the other worker hung up");
  }
  void End(absl::Status failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    failure_ = std::move(failure);
    over_ = true;
    changed_.SignalAll();
  }

  mutable Mutex mu_;
  CondVar changed_;
  // The receiver of the current call; null between two calls.
  PullReceiver* receiver_ ABSL_GUARDED_BY(mu_) = nullptr;
  uint64_t number_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t size_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t received_ ABSL_GUARDED_BY(mu_) = 0;
  bool over_ ABSL_GUARDED_BY(mu_) = true;
  std::optional<v1::ErrorDetail> poison_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // Declared last, so that it ends before the fields that its callbacks use.
  SharedMemoryEnd end_;
};

// A call over shared memory if its worker can be reached that way, otherwise
// over the other transport.
class SharedMemoryPeers::Call : public PeerCall {
 public:
  Call(SharedMemoryPeers* peers, v1::Peer peer, v1::PullRequest request)
      : peers_(*peers), peer_(std::move(peer)), request_(std::move(request)) {}

  absl::StatusOr<std::optional<v1::ErrorDetail>> Receive(
      uint64_t size, PullReceiver* receiver) override {
    std::unique_ptr<Connection> connection = peers_.ConnectTo(peer_);
    if (connection == nullptr) return ReceiveElsewhere(size, receiver);
    {
      MutexLock lock(&mu_);
      if (cancelled_) return absl::CancelledError("given up");
      connection_ = connection.get();
    }
    absl::StatusOr<std::optional<v1::ErrorDetail>> received =
        connection->Fetch(request_, receiver);
    {
      // Cancel() leaves the connection alone from here on.
      MutexLock lock(&mu_);
      connection_ = nullptr;
      while (cancelling_ > 0) changed_.Wait(&mu_);
    }
    if (connection->usable()) peers_.GiveBack(peer_, std::move(connection));
    return received;
  }

  void Cancel() override {
    Connection* connection;
    PeerCall* elsewhere;
    {
      MutexLock lock(&mu_);
      cancelled_ = true;
      connection = connection_;
      elsewhere = elsewhere_.get();
      if (connection != nullptr) ++cancelling_;
    }
    if (elsewhere != nullptr) elsewhere->Cancel();
    if (connection == nullptr) return;
    connection->Cancel();
    MutexLock lock(&mu_);
    --cancelling_;
    changed_.SignalAll();
  }

 private:
  absl::StatusOr<std::optional<v1::ErrorDetail>> ReceiveElsewhere(
      uint64_t size, PullReceiver* receiver) {
    DJINN_ASSIGN_OR_RETURN(std::unique_ptr<PeerCall> call,
                           peers_.other_->Open(peer_, request_));
    PeerCall* const open = call.get();
    {
      MutexLock lock(&mu_);
      elsewhere_ = std::move(call);
      if (cancelled_) return absl::CancelledError("given up");
    }
    return open->Receive(size, receiver);
  }

  SharedMemoryPeers& peers_;
  const v1::Peer peer_;
  const v1::PullRequest request_;
  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  Connection* connection_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Threads that use the connection in Cancel().
  int cancelling_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar changed_;
  // The call over the other transport. Never reset once it is set.
  std::unique_ptr<PeerCall> elsewhere_ ABSL_GUARDED_BY(mu_);
};

SharedMemoryPeers::SharedMemoryPeers(Clock* clock) : clock_(clock) {}
SharedMemoryPeers::~SharedMemoryPeers() {
  Connections ended;
  {
    MutexLock lock(&mu_);
    ended = ForgetLocked();
  }
  End(std::move(ended));
}

void SharedMemoryPeers::TakeIdle(absl::Duration since, Known* known,
                                 Connections* taken) {
  auto it = known->idle.begin();
  for (; it != known->idle.end() && it->since <= since; ++it) {
    taken->push_back(std::move(it->connection));
  }
  known->idle.erase(known->idle.begin(), it);
}

void SharedMemoryPeers::Tick() {
  Connections ended;
  {
    MutexLock lock(&mu_);
    const absl::Duration since = clock_->Monotonic() - kIdleTime;
    for (auto& [worker, known] : known_) TakeIdle(since, &known, &ended);
  }
  End(std::move(ended));
}

SharedMemoryPeers::Connections SharedMemoryPeers::ForgetLocked() {
  Connections idle;
  for (auto& [worker, known] : known_) {
    TakeIdle(absl::InfiniteDuration(), &known, &idle);
  }
  known_.clear();
  return idle;
}

void SharedMemoryPeers::End(Connections connections) {
  for (const auto& connection : connections) connection->Close();
}

void SharedMemoryPeers::SetOther(std::unique_ptr<PeerConnector> other) {
  other_ = std::move(other);
}

void SharedMemoryPeers::Learn(const v1::Peer& peer, const std::string& socket) {
  Connections ended;
  {
    MutexLock lock(&mu_);
    if (known_.size() >= kMaxPeers && !known_.contains(peer.worker_id())) {
      ended = ForgetLocked();
    }
    Known& known = known_[peer.worker_id()];
    if (known.incarnation != peer.incarnation()) {
      TakeIdle(absl::InfiniteDuration(), &known, &ended);
      known = Known();
      known.incarnation = peer.incarnation();
      known.socket = socket;
    }
  }
  End(std::move(ended));
}

absl::StatusOr<std::unique_ptr<PeerCall>> SharedMemoryPeers::Open(
    const v1::Peer& peer, const v1::PullRequest& request) {
  return std::make_unique<Call>(this, peer, request);
}

std::unique_ptr<SharedMemoryPeers::Connection> SharedMemoryPeers::ConnectTo(
    const v1::Peer& peer) {
  std::string socket;
  // Connections whose peer has hung up, to be closed without the lock.
  Connections ended;
  {
    MutexLock lock(&mu_);
    const auto found = known_.find(peer.worker_id());
    if (found == known_.end() ||
        clock_->Monotonic() < found->second.barred_until ||
        found->second.incarnation != peer.incarnation()) {
      return nullptr;
    }
    std::vector<Idle>& idle = found->second.idle;
    while (!idle.empty()) {
      std::unique_ptr<Connection> connection =
          std::move(idle.back().connection);
      idle.pop_back();
      if (connection->usable()) return connection;
      ended.push_back(std::move(connection));
    }
    socket = found->second.socket;
  }
  absl::StatusOr<SharedConnection> dialled = Dial(socket, peer.incarnation());
  if (!dialled.ok()) {
    Refuse(peer, dialled.status());
    return nullptr;
  }
  return std::make_unique<Connection>(*std::move(dialled));
}

void SharedMemoryPeers::GiveBack(const v1::Peer& peer,
                                 std::unique_ptr<Connection> connection) {
  MutexLock lock(&mu_);
  const auto found = known_.find(peer.worker_id());
  if (found == known_.end() ||
      found->second.incarnation != peer.incarnation() ||
      found->second.idle.size() >= kMaxIdle) {
    return;
  }
  found->second.idle.push_back({std::move(connection), clock_->Monotonic()});
}

void SharedMemoryPeers::Refuse(const v1::Peer& peer, const absl::Status& why) {
  log::Info("values of a worker do not come over shared memory",
            {{"worker", peer.worker_id()}, {"why", why}});
  MutexLock lock(&mu_);
  const auto found = known_.find(peer.worker_id());
  if (found == known_.end() ||
      found->second.incarnation != peer.incarnation()) {
    return;
  }
  found->second.barred_until =
      IsForGood(why) ? absl::InfiniteDuration() : clock_->Monotonic() + kPause;
}

}  // namespace djinn::worker
