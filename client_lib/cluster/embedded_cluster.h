// Runs a coordinator and workers as child processes, on Unix sockets in a
// private folder, with tokens of their own. djinn::EmbeddedCluster and tests
// with several processes use it.
//
// The children end with this object, and when this process ends in any way. The
// next cluster removes the folders that killed processes left behind. Not
// thread-safe, but different threads may use it in turn.
#ifndef CLIENT_LIB_CLUSTER_EMBEDDED_CLUSTER_H_
#define CLIENT_LIB_CLUSTER_EMBEDDED_CLUSTER_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client_lib/cluster/child_process.h"

namespace djinn {

struct ClusterOptions {
  int workers = 1;
  // "cpu" or "fake".
  std::string device_kind = "cpu";
  uint64_t worker_memory_bytes = uint64_t{8} << 30;
  // Compute threads of each worker; 0 lets the worker choose.
  int worker_threads = 0;
  // If true, each worker measures its device's speed before it joins.
  bool calibrate = false;
  // Bytes of contents that each worker keeps on disk for its next start; 0
  // disables this.
  uint64_t worker_disk_bytes = 0;
  // Absolute paths of libraries that each worker loads besides PyTorch's
  // operators.
  std::vector<std::string> operator_libraries;
  // Further ones, which a worker that cannot load them does without.
  std::vector<std::string> optional_operator_libraries;
  // Addresses that clients dial instead of the workers' own addresses; empty
  // for the workers' own.
  std::vector<std::string> advertise;
  // How long a session survives without its client, and how long a worker
  // counts as alive without a message.
  absl::Duration session_timeout = absl::Seconds(30);
  absl::Duration worker_timeout = absl::Seconds(10);
  // Limit on the start.
  absl::Duration start_timeout = absl::Seconds(60);
  // The beginning of the workers' ids, before their index.
  std::string worker_prefix = "worker-";
};

class ClusterProcesses {
 public:
  // Starts a cluster and returns when every worker has joined. Returns NotFound
  // (PROGRAM_MISSING) when a program is missing. Returns Internal (CHILD_ENDED)
  // or DeadlineExceeded (START_TIMEOUT), with the end of the child's output,
  // when a child fails to start.
  static absl::StatusOr<std::unique_ptr<ClusterProcesses>> Start(
      const ClusterOptions& options);

  // Calls Stop().
  ~ClusterProcesses();

  // Returns a gRPC target.
  std::string coordinator_address() const;
  // Return files with the tenant's and the operators' tokens.
  std::string token_file() const { return Path("tenant.token"); }
  std::string admin_token_file() const { return Path("admin.token"); }
  // Return files with the processes' logs.
  std::string coordinator_log() const { return Path("coordinator.log"); }
  std::string worker_log(size_t index) const;
  // Returns the file with the token that workers join with.
  std::string join_token_file() const { return Path("join.token"); }
  pid_t coordinator_pid() const { return coordinator_->pid(); }
  // Returns process ids in the order of worker ids: "worker-0", "worker-1",
  // ..., or with another prefix.
  std::vector<pid_t> worker_pids() const;

  // Returns the path of a worker's socket.
  std::string worker_socket(size_t index) const;

  // Kills the worker if it still runs, and starts another one with the same
  // configuration. Returns when it has joined.
  absl::Status RestartWorker(size_t index);

  // Kills the coordinator if it still runs, and starts another one with the
  // same configuration. Returns when the running workers have joined it.
  absl::Status RestartCoordinator();

  // Ends the children, by SIGTERM and then SIGKILL, and removes the folder.
  void Stop();

 private:
  ClusterProcesses(ClusterOptions options, ClusterPrograms programs)
      : options_(std::move(options)), programs_(std::move(programs)) {}

  absl::Status Prepare();
  absl::Status MakeFolder();
  absl::Status StartChildren();
  absl::Status StartCoordinator();
  absl::Status StartWorker(size_t index);
  absl::Status WaitForWorkers();
  absl::Status Write(const std::string& name, const std::string& text);
  std::string Path(const std::string& name) const;
  std::string WorkerId(size_t index) const;

  const ClusterOptions options_;
  const ClusterPrograms programs_;
  // The parent of the child processes.
  const pid_t owner_ = getpid();
  std::string folder_;
  std::string admin_token_;
  // A lock on the folder, which is in use while this process lives.
  int folder_lock_ = -1;
  // This process alone holds the pipe open. Its end ends the children.
  int lifeline_read_ = -1;
  int lifeline_write_ = -1;
  std::unique_ptr<ChildProcess> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
  bool started_ = false;  // all workers have joined once
};

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_EMBEDDED_CLUSTER_H_
