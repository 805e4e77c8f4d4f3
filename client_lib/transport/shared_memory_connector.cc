#include "client_lib/transport/shared_memory_connector.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/transport/shared_memory/shared_memory_stream.h"

namespace djinn {
namespace {

constexpr absl::Duration kGreetingTimeout = absl::Seconds(2);

// Holds the incarnations of the workers that refused shared memory. It may
// outlive the connector, because streams use it.
class Refusals {
 public:
  bool Contains(uint64_t incarnation) const {
    MutexLock lock(&mu_);
    return incarnations_.contains(incarnation);
  }
  void Add(const v1::Lease& lease, const absl::Status& status) {
    {
      MutexLock lock(&mu_);
      if (!incarnations_.insert(lease.worker_incarnation()).second) return;
    }
    log::Warning("a worker of this machine is reached over gRPC",
                 {{"worker", lease.worker_id()},
                  {"socket", lease.shared_memory_socket()},
                  {"error", status}});
  }

 private:
  mutable Mutex mu_;
  absl::flat_hash_set<uint64_t> incarnations_ ABSL_GUARDED_BY(mu_);
};

class SharedMemoryConnector : public WorkerConnector {
 public:
  explicit SharedMemoryConnector(std::unique_ptr<WorkerConnector> other)
      : other_(std::move(other)) {}

  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string& session_id) override {
    absl::StatusOr<Descriptor> socket = Dial(lease);
    absl::StatusOr<Descriptor> wake = MakeEvent();
    if (socket.ok() && !wake.ok()) refusals_->Add(lease, wake.status());
    if (!socket.ok() || !wake.ok()) return other_->Connect(lease, session_id);
    // Shared, because functions must be copyable.
    auto dialled = std::make_shared<Descriptor>(*std::move(socket));
    return MakeSharedMemoryClientStream(
        [dialled, lease,
         refusals = refusals_](int event) -> absl::StatusOr<SharedConnection> {
          absl::StatusOr<SharedConnection> connection =
              Accept(std::move(*dialled), lease, event);
          if (connection.ok() || absl::IsCancelled(connection.status())) {
            return connection;
          }
          refusals->Add(lease, connection.status());
          // The error has no reason, so that the session makes another attempt.
          return absl::UnavailableError(connection.status().message());
        },
        *std::move(wake));
  }

 private:
  static absl::StatusOr<SharedConnection> Accept(Descriptor socket,
                                                 const v1::Lease& lease,
                                                 int wake) {
    DJINN_ASSIGN_OR_RETURN(
        SharedConnection connection,
        SharedConnection::Accept(std::move(socket), lease.worker_incarnation(),
                                 wake, kGreetingTimeout));
    const SharedRegion::Ring ring = connection.region.bulk(SharedSide::kClient);
    if (FrameRingWriter(ring.state, ring.data, ring.bytes).max_payload() <
        kBulkChunkBytes) {
      return absl::FailedPreconditionError("the rings are too small");
    }
    return connection;
  }

  absl::StatusOr<Descriptor> Dial(const v1::Lease& lease) const {
    if (lease.shared_memory_socket().empty() ||
        refusals_->Contains(lease.worker_incarnation())) {
      return absl::NotFoundError("not offered");
    }
    // Fails if the worker is on another machine. If another process of this
    // machine listens at the worker's path, the greeting detects this.
    DJINN_ASSIGN_OR_RETURN(Descriptor socket,
                           DialSharedMemory(lease.shared_memory_socket()));
    const absl::Status user = CheckSameUser(socket.get());
    if (!user.ok()) refusals_->Add(lease, user);
    DJINN_RETURN_IF_ERROR(user);
    return socket;
  }

  const std::unique_ptr<WorkerConnector> other_;
  const std::shared_ptr<Refusals> refusals_ = std::make_shared<Refusals>();
};

}  // namespace

std::unique_ptr<WorkerConnector> MakeSharedMemoryConnector(
    std::unique_ptr<WorkerConnector> other) {
  return std::make_unique<SharedMemoryConnector>(std::move(other));
}

}  // namespace djinn
