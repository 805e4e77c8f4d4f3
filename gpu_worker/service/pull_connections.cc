#include "gpu_worker/service/pull_connections.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/log/log.h"
#include "common/transport/shared_memory/shared_memory_end.h"
#include "common/transport/stream.h"

namespace djinn::worker {
namespace {

// The most bytes of a request, which holds a session, a ticket and numbers.
constexpr size_t kMaxRequestBytes = 4096;

absl::Status Violation(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
                   what);
}

// Bytes being sent, and the owners that keep them alive.
struct Sending {
  std::shared_ptr<const OfferedBytes> offered;
  SharedBytes host;
};

}  // namespace

class PullConnections::Connection
    : public SharedMemoryEnd::Handler,
      public OfferClaimant,
      public std::enable_shared_from_this<Connection> {
 public:
  Connection(SharedConnection connection, WorkerCore* core,
             absl::Duration close_timeout)
      : core_(*core),
        end_(SharedSide::kWorker,
             {.close_timeout = close_timeout,
              .max_message_bytes = kMaxRequestBytes},
             std::move(connection)) {}

  void Start() { end_.Start(/*open=*/nullptr, this); }
  void Stop() {
    end_.Close(MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                         "the worker stops"));
    core_.AbandonPull(this);
  }
  // Returns when no callback of the connection will run any more.
  void AwaitClosed() {
    MutexLock lock(&mu_);
    while (!closed_) changed_.Wait(&mu_);
  }
  bool closed() const {
    MutexLock lock(&mu_);
    return closed_;
  }
  void Tick() {
    bool stuck = false;
    std::string session_id;
    // This may be the last reference to the bytes, so it is released without
    // the lock.
    std::shared_ptr<const Sending> sending;
    {
      MutexLock lock(&mu_);
      sending = sending_.lock();
      if (sending == nullptr) {
        seen_call_ = 0;
        return;
      }
      stuck =
          sending->offered->recalled || (seen_call_ == call_ && seen_ == sent_);
      seen_call_ = call_;
      seen_ = sent_;
      session_id = session_id_;
    }
    if (!stuck) return;
    log::Warning(sending->offered->recalled
                     ? "pull over shared memory given up: the session has no "
                       "room"
                     : "pull over shared memory given up: nothing was taken",
                 {{"session", log::ShortId(session_id)}});
    end_.Close(absl::UnavailableError("nothing was taken"));
  }

  // Implements SharedMemoryEnd::Handler.
  absl::Status OnBytes(absl::string_view message) override {
    v1::PullRequest request;
    if (!request.ParseFromArray(message.data(),
                                static_cast<int>(message.size()))) {
      return Violation("bytes that are no message");
    }
    {
      MutexLock lock(&mu_);
      if (std::exchange(asked_, true)) return Violation("two calls at a time");
      ++call_;
      sent_ = 0;
      session_id_ = request.session_id();
    }
    core_.Pull(request, shared_from_this());
    return absl::OkStatus();
  }
  void OnBulk(uint64_t, uint64_t,
              absl::Span<const absl::string_view>) override {
    end_.Close(Violation("bytes of a worker that asks for some"));
  }
  void OnBulkRoom() override { Pump(); }
  void OnClosed(absl::Status) override {
    core_.AbandonPull(this);
    std::shared_ptr<const Sending> gone;  // Released without the lock.
    MutexLock lock(&mu_);
    gone = std::move(unsent_);
    closed_ = true;
    changed_.SignalAll();
  }

  // Implements OfferClaimant.
  void StillWaiting() override {
    v1::PullResponse response;
    response.mutable_waiting();
    end_.Send(response.SerializeAsString());
  }
  void Give(std::shared_ptr<const OfferedBytes> bytes) override {
    if (bytes->poison != nullptr) {
      v1::PullResponse response;
      *response.mutable_poisoned() = *bytes->poison;
      {
        MutexLock lock(&mu_);
        asked_ = false;
      }
      end_.Send(response.SerializeAsString());
      return;
    }
    absl::StatusOr<SharedBytes> host = core_.device()->HostBytes(bytes->buffer);
    if (!host.ok()) return Refuse(host.status());
    {
      MutexLock lock(&mu_);
      if (closed_) return;
      unsent_ = std::make_shared<const Sending>(
          Sending{std::move(bytes), *std::move(host)});
      sending_ = unsent_;
    }
    Pump();
  }
  void Refuse(absl::Status why) override { end_.Close(std::move(why)); }

 private:
  // Sends as much as there is room for. The end calls nothing back meanwhile,
  // so holding the lock keeps two threads from sending at the same time. The
  // last bytes are sent without it, because nothing else is sent then.
  void Pump() {
    SharedBytes last;
    uint64_t call = 0;
    uint64_t offset = 0;
    {
      std::shared_ptr<const Sending> done;  // Released without the lock.
      MutexLock lock(&mu_);
      while (unsent_ != nullptr) {
        if (unsent_->offered->recalled) {
          done = std::move(unsent_);
          return end_.Close(MakeError(
              absl::StatusCode::kResourceExhausted, "SESSION_MEMORY",
              "the storage was written or freed, and the session's limit had "
              "no room to keep what was offered"));
        }
        call = call_;
        offset = sent_;
        const absl::string_view bytes =
            unsent_->host.bytes.substr(offset, kBulkChunkBytes);
        sent_ += bytes.size();
        if (sent_ == unsent_->offered->size_bytes) {
          // The offered bytes are released before the peer can have all of
          // them, so that their memory is free here when the peer says that it
          // has them.
          auto copy = std::make_shared<const std::string>(bytes);
          last.bytes = *copy;
          last.owner = std::move(copy);
          done = std::move(unsent_);
          asked_ = false;
        } else if (!end_.SendBulk(call, offset, {bytes, unsent_})) {
          return;
        }
      }
    }
    if (last.owner != nullptr) end_.SendBulk(call, offset, std::move(last));
  }

  WorkerCore& core_;
  mutable Mutex mu_;
  CondVar changed_;
  // True while a call is open: from its request until its last bytes, or its
  // last answer, are sent.
  bool asked_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t call_ ABSL_GUARDED_BY(mu_) = 0;
  std::string session_id_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0;
  // Null once the end has all of it. The end holds the bytes until they are in
  // the ring.
  std::shared_ptr<const Sending> unsent_ ABSL_GUARDED_BY(mu_);
  std::weak_ptr<const Sending> sending_ ABSL_GUARDED_BY(mu_);
  // The values at the last tick; seen_call_ is 0 when nothing was being sent.
  uint64_t seen_call_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t seen_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // Declared last, so that it ends before the fields that its callbacks use.
  SharedMemoryEnd end_;
};

PullConnections::~PullConnections() {
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock lock(&mu_);
    connections.swap(connections_);
  }
  // Saying goodbye may take each connection some time, so all do it together.
  for (const auto& connection : connections) connection->Stop();
  for (const auto& connection : connections) connection->AwaitClosed();
}

void PullConnections::Add(SharedConnection shared) {
  const auto connection =
      std::make_shared<Connection>(std::move(shared), core_, close_timeout_);
  connection->Start();
  // Released without the lock.
  const std::vector<std::shared_ptr<Connection>> ended = TakeEnded();
  MutexLock lock(&mu_);
  connections_.push_back(connection);
}

void PullConnections::Tick() {
  const std::vector<std::shared_ptr<Connection>> ended = TakeEnded();
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock lock(&mu_);
    connections = connections_;
  }
  for (const auto& connection : connections) connection->Tick();
}

std::vector<std::shared_ptr<PullConnections::Connection>>
PullConnections::TakeEnded() {
  MutexLock lock(&mu_);
  const auto ended =
      std::stable_partition(connections_.begin(), connections_.end(),
                            [](const std::shared_ptr<Connection>& connection) {
                              return !connection->closed();
                            });
  std::vector<std::shared_ptr<Connection>> taken(
      std::make_move_iterator(ended),
      std::make_move_iterator(connections_.end()));
  connections_.erase(ended, connections_.end());
  return taken;
}

size_t PullConnections::count() const {
  MutexLock lock(&mu_);
  return connections_.size();
}

}  // namespace djinn::worker
