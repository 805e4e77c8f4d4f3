// What a session needs from the coordinator. Implementations: gRPC
// (client_lib/transport/grpc_coordinator_link.h) and tests' own.
#ifndef CLIENT_LIB_SESSION_MODEL_COORDINATOR_LINK_H_
#define CLIENT_LIB_SESSION_MODEL_COORDINATOR_LINK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

// Callbacks, from a thread of the link, without its locks. Must not block on
// the link.
class CoordinatorEvents {
 public:
  virtual ~CoordinatorEvents() = default;
  // A lease ended without the client's doing; `reason` as in LeaseEnded.
  virtual void OnLeaseEnded(const std::string& lease_id,
                            const std::string& reason) = 0;
  // The virtual device that uses the lease should go on at another worker.
  // However that ends, ReportMigration() is called once.
  virtual void OnMigrationRequested(const v1::MigrationRequest& request) = 0;
  // How a graph that was sent with a StageRequest should be cut.
  virtual void OnStages(const v1::StageAnswer& answer) = 0;
  // The coordinator may be another, which knows no graphs.
  virtual void OnAttachedAgain() = 0;
};

// Thread-safe. Losing the connection is the link's own business: it attaches
// again in the background, and only what is asked meanwhile may fail.
class CoordinatorLink {
 public:
  struct Opened {
    std::string session_id;
    std::string tenant;
  };

  virtual ~CoordinatorLink() = default;

  // Opens a session; called once. No callback comes before it succeeded or
  // after Close().
  virtual absl::StatusOr<Opened> Open(const std::string& program,
                                      absl::Duration timeout,
                                      CoordinatorEvents* events) = 0;

  // Asks for a worker and waits: the grant, the refusal as a status with the
  // coordinator's code and reason, or DeadlineExceeded.
  virtual absl::StatusOr<v1::LeaseGranted> RequestLease(
      v1::LeaseRequest request, absl::Duration timeout) = 0;

  // The session has no use for a lease that it was given: told soon, and again
  // whenever the link attaches. `unreachable`: its worker was not reached. What
  // is granted when nobody waits for it any more the link gives back by itself.
  // Never blocks.
  virtual void ReturnLease(const std::string& lease_id, bool unreachable) = 0;

  // Queues a graph for the coordinator to understand, with what the program
  // said about it, and what is asked about it, if anything. When the queue is
  // full the graph is dropped and counted. Never blocks.
  virtual void SendGraph(v1::Graph graph, v1::GraphNotes notes,
                         std::optional<v1::StageRequest> stages) = 0;

  // How a migration of the virtual device ended: told soon, and again whenever
  // the link attaches, until the next one of it. Never blocks.
  virtual void ReportMigration(uint32_t virtual_device,
                               v1::MigrationOutcome outcome) = 0;

  // Lease requests, waiting and to come, fail with Cancelled.
  virtual void CancelRequests() = 0;

  // Ends the session at the coordinator. No callback runs afterwards.
  virtual absl::Status Close(absl::Duration timeout) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_COORDINATOR_LINK_H_
