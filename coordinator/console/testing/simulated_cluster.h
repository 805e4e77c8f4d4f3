// Plays a cluster of any size to the console: every answer is made up from the
// numbers of workers, sessions and looks, and is the same in every test.
#ifndef COORDINATOR_CONSOLE_TESTING_SIMULATED_CLUSTER_H_
#define COORDINATOR_CONSOLE_TESTING_SIMULATED_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "coordinator/console/admin_reader.h"

namespace djinn::console {

// Thread-safe.
class SimulatedCluster : public AdminReader {
 public:
  struct Options {
    int workers = 3;
    int tenants = 4;
    // One virtual device each; session i has its lease on worker
    // i % workers.
    int sessions = 6;
    // Runs that each question about a session answers with; all but one have
    // ended, and the next answer has others.
    int runs = 4;
    // Every so-many-th session lost its lease on another worker, and every
    // so-many-th migrated. 0: none.
    int lost_every = 3;
    int migrated_every = 5;
    // Ages grow by this clock, which outlives the cluster. Null: they are those
    // of the first look for ever.
    Clock* clock = nullptr;
  };
  explicit SimulatedCluster(Options options)
      : options_(options),
        began_(options.clock == nullptr ? absl::ZeroDuration()
                                        : options.clock->Monotonic()) {}

  // From now on, every method returns this error; OK ends that.
  void Fail(absl::Status status);
  // From now on, the worker is lost and its leases are on other workers.
  void Lose(int worker);

  absl::StatusOr<v1::ListWorkersResponse> Workers() override;
  absl::StatusOr<v1::ListSessionsResponse> Sessions() override;
  absl::StatusOr<v1::ListTenantsResponse> Tenants() override;
  absl::StatusOr<v1::ListQueuesResponse> Queues() override;
  absl::StatusOr<v1::ListLeasesResponse> Leases() override;
  absl::StatusOr<v1::ListGraphsResponse> Graphs() override;
  // Errors: NotFound (GRAPH_UNKNOWN).
  absl::StatusOr<v1::GraphInfo> Graph(const std::string& fingerprint) override;
  absl::StatusOr<v1::ListRunsResponse> Runs(
      const std::string& session_id) override;
  absl::StatusOr<v1::SessionExplanation> ExplainSession(
      const std::string& session_id) override;
  absl::StatusOr<v1::TenantExplanation> ExplainTenant(
      const std::string& tenant) override;

 private:
  std::string Tenant(int session) const;
  // Returns the time since the cluster began.
  absl::Duration Elapsed() const;
  int WorkerOf(int session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string LeaseOf(int session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const absl::Duration began_;
  Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  int lost_worker_ ABSL_GUARDED_BY(mu_) = -1;
  // Number of looks, each of which begins with the workers.
  int looks_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<int> asked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::console

#endif  // COORDINATOR_CONSOLE_TESTING_SIMULATED_CLUSTER_H_
