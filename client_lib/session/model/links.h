// Defines what a session needs from outside: a link to the coordinator, and
// streams to workers. Implementations: gRPC (client_lib/transport) and fakes in
// tests.
#ifndef CLIENT_LIB_SESSION_MODEL_LINKS_H_
#define CLIENT_LIB_SESSION_MODEL_LINKS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/transport/stream.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

// The reason with which a link ends the lease of a worker on the client's
// machine when the cluster has another one (client_lib/cluster). A device that
// cannot be replayed stays there, and keeps its lease.
inline constexpr char kFallbackEnded[] = "FALLBACK_ENDED";

// The reason with which a device leaves its worker because another virtual
// device, from which that worker was to fetch a value, lost its own. Its next
// worker fetches the value from the other device's next worker.
inline constexpr char kSourceLost[] = "SOURCE_LOST";

// The reason with which a device leaves a worker that lacks the memory for the
// replay.
inline constexpr char kReplayRefused[] = "REPLAY_REFUSED";

// Returns whether a device leaves a worker that is well for this reason.
inline bool IsLeft(absl::string_view reason) {
  return reason == kSourceLost || reason == kReplayRefused;
}

// The reason with which a device leaves a worker that makes no progress.
inline constexpr char kNoProgress[] = "NO_PROGRESS";

// A thread of the link runs these callbacks without holding the link's locks.
// They must not block on the link.
class CoordinatorEvents {
 public:
  virtual ~CoordinatorEvents() = default;
  // The coordinator or the worker ended the lease. `reason` is as in
  // LeaseEnded.
  virtual void OnLeaseEnded(const std::string& lease_id,
                            const std::string& reason) = 0;
  // The coordinator asks that the virtual device which uses the lease migrates
  // to another worker. The receiver calls ReportMigration() once, whatever the
  // outcome.
  virtual void OnMigrationRequested(const v1::MigrationRequest& request) = 0;
  // Delivers how to cut a graph that was sent with a StageRequest.
  virtual void OnStages(const v1::StageAnswer& answer) = 0;
  // Called when the link has attached again, perhaps to another coordinator,
  // which knows no graphs.
  virtual void OnAttachedAgain() = 0;
  // An operator asks what is kept against the loss of a worker. The receiver
  // answers by CoordinatorLink::Report().
  virtual void OnLineageAsked(const v1::LineageQuestion& question) = 0;
};

// Thread-safe. A link that loses the connection attaches again in the
// background. Only requests that are made meanwhile may fail.
class CoordinatorLink {
 public:
  struct Opened {
    std::string session_id;
    std::string tenant;
  };

  virtual ~CoordinatorLink() = default;

  // Opens a session; called once. Callbacks run only after it succeeds and
  // before Close() returns.
  virtual absl::StatusOr<Opened> Open(const std::string& program,
                                      absl::Duration timeout,
                                      CoordinatorEvents* events) = 0;

  // Requests a worker and waits. Returns the grant, a refusal with the
  // coordinator's code and reason, or DeadlineExceeded.
  virtual absl::StatusOr<v1::LeaseGranted> RequestLease(
      v1::LeaseRequest request, absl::Duration timeout) = 0;

  // Returns a lease that the session does not use. The link sends this soon,
  // and once more each time it attaches. `unreachable` says that the session
  // could not reach the lease's worker. The link itself returns leases granted
  // after their request was abandoned. Never blocks.
  virtual void ReturnLease(const std::string& lease_id, bool unreachable) = 0;

  // Queues a graph for the coordinator's analysis, with the program's notes and
  // an optional request for stages. Drops and counts the graph when the queue
  // is full. Never blocks.
  virtual void SendGraph(v1::Graph graph, v1::GraphNotes notes,
                         std::optional<v1::StageRequest> stages) = 0;

  // Reports how a migration of the virtual device ended. The link sends the
  // report soon, and once more each time it attaches, until the next migration
  // of that device. Never blocks.
  virtual void ReportMigration(uint32_t virtual_device,
                               v1::MigrationOutcome outcome) = 0;

  // Fails current and future lease requests with Cancelled.
  virtual void CancelRequests() = 0;

  // Ends the session at the coordinator. No callback runs afterwards.
  virtual absl::Status Close(absl::Duration timeout) = 0;

  // Queues a message for operators that has no answer: `recovered`,
  // `checkpoint` or `lineage` of a SessionRequest. Drops the oldest one when
  // many wait, and may lose those that were sent just before a break. Never
  // blocks.
  virtual void Report(v1::SessionRequest report) = 0;
};

// Connects a session to the worker of a lease. Thread-safe.
class WorkerConnector {
 public:
  virtual ~WorkerConnector() = default;

  // Returns a stream to the lease's worker. The stream is not started, and the
  // caller sends Hello. Does not wait for the network: if the worker cannot be
  // reached, the stream closes.
  virtual absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string& session_id) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_LINKS_H_
