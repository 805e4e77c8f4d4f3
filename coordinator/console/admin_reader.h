// Reads a cluster's state from its Admin service. The interface has no method
// that changes anything, so nothing behind it can.
#ifndef COORDINATOR_CONSOLE_ADMIN_READER_H_
#define COORDINATOR_CONSOLE_ADMIN_READER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/coordinator_channels.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::console {

// Each method has a deadline of a few seconds and returns the errors of the RPC
// of its name. Lists are complete, all pages as one. Thread-safe.
class AdminReader {
 public:
  virtual ~AdminReader() = default;

  virtual absl::StatusOr<v1::ListWorkersResponse> Workers() = 0;
  virtual absl::StatusOr<v1::ListSessionsResponse> Sessions() = 0;
  virtual absl::StatusOr<v1::ListTenantsResponse> Tenants() = 0;
  virtual absl::StatusOr<v1::ListQueuesResponse> Queues() = 0;
  virtual absl::StatusOr<v1::ListLeasesResponse> Leases() = 0;
  virtual absl::StatusOr<v1::ListGraphsResponse> Graphs() = 0;
  virtual absl::StatusOr<v1::GraphInfo> Graph(
      const std::string& fingerprint) = 0;
  virtual absl::StatusOr<v1::ListRunsResponse> Runs(
      const std::string& session_id) = 0;
  virtual absl::StatusOr<v1::SessionExplanation> ExplainSession(
      const std::string& session_id) = 0;
  virtual absl::StatusOr<v1::TenantExplanation> ExplainTenant(
      const std::string& tenant) = 0;
};

// Returns a reader that calls the coordinator that leads with this token, and
// follows when another one does. Any role may read. `deadline` bounds each
// call. `channels` outlives the reader.
std::unique_ptr<AdminReader> MakeGrpcAdminReader(
    CoordinatorChannels* channels, std::string token,
    absl::Duration deadline = absl::Seconds(5));

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_ADMIN_READER_H_
