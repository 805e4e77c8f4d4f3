// Runs a coordinator and a worker on this machine with several tenants and
// arbitrary settings, which EmbeddedCluster does not offer. It takes the
// programs from $DJINN_BIN_DIR, or from Bazel's output.
#ifndef TESTS_BENCH_TENANT_CLUSTER_H_
#define TESTS_BENCH_TENANT_CLUSTER_H_

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "djinn/connect.h"
#include "tests/bench/child_process.h"

namespace djinn::bench {

// Returns the next line of a slow program, which may take two minutes.
absl::StatusOr<std::string> ReadLinePatiently(ChildProcess* process);

// Connects to a cluster that may not be ready yet.
absl::Status ConnectPatiently(const ConnectOptions& options);

class TenantCluster {
 public:
  struct Settings {
    std::vector<std::string> tenants;
    // Settings of every tenant, such as "share_contents: true".
    std::string of_tenants;
    // Address of the worker, and further lines of its configuration.
    std::string worker_listens = "127.0.0.1:0";
    std::string of_worker;
  };

  // Starts the processes, and does not wait until they serve. Not thread-safe.
  static absl::StatusOr<std::unique_ptr<TenantCluster>> Start(
      const Settings& settings);
  ~TenantCluster();

  // Starts the worker again after it was killed.
  absl::Status StartWorker();

  const std::filesystem::path& folder() const { return folder_; }
  // Return what clients connect with.
  std::string coordinator() const;
  std::string token_file(const std::string& tenant) const {
    return (folder_ / tenant).string();
  }

  ConnectOptions connect_options(const std::string& tenant) const;

  // Returns the present sum of a metric over all of its label values. `process`
  // exports the metric, and is "coordinator" or "worker".
  absl::StatusOr<double> Metric(const std::string& process,
                                const std::string& name) const;

 private:
  explicit TenantCluster(std::filesystem::path folder)
      : folder_(std::move(folder)) {}

  absl::StatusOr<std::unique_ptr<ChildProcess>> Run(
      const std::string& package, const std::string& name,
      const std::string& role) const;

  const std::filesystem::path folder_;
  std::unique_ptr<ChildProcess> coordinator_process_;
  std::unique_ptr<ChildProcess> worker_;
};

}  // namespace djinn::bench

#endif  // TESTS_BENCH_TENANT_CLUSTER_H_
