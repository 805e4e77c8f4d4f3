// A coordinator and workers as child processes, on Unix sockets in a private
// folder, with tokens of their own: what djinn::EmbeddedCluster and tests that
// span processes run on.
//
// The children end with this object, and when this process ends in any way; a
// folder that a killed process left behind is removed by the next cluster.
// Not thread-safe, but any thread may hold it: nothing depends on which one
// started it.
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
#include "client_lib/cluster/find_programs.h"

namespace djinn {

struct ClusterOptions {
  int workers = 1;
  // "cpu" or "fake".
  std::string device_kind = "cpu";
  uint64_t worker_memory_bytes = uint64_t{8} << 30;
  // Compute threads of each worker; 0: its own choice.
  int worker_threads = 0;
  // Each worker measures how fast its device is before it joins.
  bool calibrate = false;
  // Contents that each worker keeps on disk, to have them when it is restarted;
  // 0: none.
  uint64_t worker_disk_bytes = 0;
  // What each worker loads besides PyTorch's operators: absolute paths.
  std::vector<std::string> operator_libraries;
  // What clients dial instead of each worker's own address; none: its own.
  std::vector<std::string> advertise;
  // How long sessions live without their client, and workers without a word.
  absl::Duration session_timeout = absl::Seconds(30);
  absl::Duration worker_timeout = absl::Seconds(10);
  // Bound on starting.
  absl::Duration start_timeout = absl::Seconds(60);
};

class ClusterProcesses {
 public:
  // Returns when every worker has joined. NotFound (PROGRAM_MISSING); Internal
  // (CHILD_ENDED) or DeadlineExceeded (START_TIMEOUT) with the end of the
  // child's output.
  static absl::StatusOr<std::unique_ptr<ClusterProcesses>> Start(
      const ClusterOptions& options);

  // As Stop().
  ~ClusterProcesses();

  // A gRPC target.
  std::string coordinator_address() const;
  // Files with the tenant's and the operators' tokens.
  std::string token_file() const { return Path("tenant.token"); }
  std::string admin_token_file() const { return Path("admin.token"); }
  // What the processes log.
  std::string coordinator_log() const { return Path("coordinator.log"); }
  std::string worker_log(size_t index) const;
  // What workers join with.
  std::string join_token_file() const { return Path("join.token"); }
  pid_t coordinator_pid() const { return coordinator_->pid(); }
  // By id: "worker-0", "worker-1", ...
  std::vector<pid_t> worker_pids() const;

  // The path of a worker's socket.
  std::string worker_socket(size_t index) const;

  // Kills the worker, if it still runs, and starts another with the same
  // configuration. Returns when it has joined.
  absl::Status RestartWorker(size_t index);

  // Kills the coordinator, if it still runs, and starts another with the same
  // configuration. Returns when the running workers have joined it.
  absl::Status RestartCoordinator();

  // Asks the children to end, then insists, and removes the folder.
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

  const ClusterOptions options_;
  const ClusterPrograms programs_;
  // The process whose children they are.
  const pid_t owner_ = getpid();
  std::string folder_;
  std::string admin_token_;
  // Locked while this process lives: the folder is in use.
  int folder_lock_ = -1;
  // Held open by this process alone: its end is the children's end.
  int lifeline_read_ = -1;
  int lifeline_write_ = -1;
  std::unique_ptr<ChildProcess> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
  bool started_ = false;  // all have joined once
};

}  // namespace djinn

#endif  // CLIENT_LIB_CLUSTER_EMBEDDED_CLUSTER_H_
