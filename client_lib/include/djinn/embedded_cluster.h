// Starts a whole cluster for one program: a coordinator and workers as child
// processes, on Unix sockets in a private folder.
//
//   auto cluster = djinn::EmbeddedCluster::Start({.workers = 2});
//   if (!cluster.ok()) return Fail(cluster.status());
//   absl::Status status = djinn::Connect((*cluster)->connect_options());
//
// The child processes end when the object is destroyed, or when this process
// ends for any reason. Close the session first. The programs are searched for
// in $DJINN_BIN_DIR, and then beside this library.
#ifndef CLIENT_LIB_INCLUDE_DJINN_EMBEDDED_CLUSTER_H_
#define CLIENT_LIB_INCLUDE_DJINN_EMBEDDED_CLUSTER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "djinn/api.h"
#include "djinn/connect.h"

namespace djinn {

struct EmbeddedClusterOptions {
  // The number of workers, 1 to 64.
  int workers = 1;
  // The device memory of each worker, in bytes.
  uint64_t worker_memory_bytes = uint64_t{8} << 30;
  // The compute threads of each worker; 0 means as many as there are cores.
  int worker_threads = 0;
  // The device of each worker, as `device.kind` in a worker's configuration:
  // "cpu" or, for example, "cuda:0". All workers share a CUDA device.
  std::string worker_device = "cpu";
  // Absolute paths of shared libraries with custom operators. Each worker loads
  // them.
  std::vector<std::string> operator_libraries;
  // Further ones, which a worker that cannot load them does without.
  std::vector<std::string> optional_operator_libraries;
  // The longest time to start.
  absl::Duration start_timeout = absl::Seconds(60);
};

class DJINN_API EmbeddedCluster {
 public:
  // Starts the processes and returns when every worker has joined. Returns
  // NotFound if a program is missing, and DeadlineExceeded, with the end of the
  // children's logs, if a process does not start in time.
  static absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(
      const EmbeddedClusterOptions& options = {});

  // Stops the children and waits for them.
  ~EmbeddedCluster();
  EmbeddedCluster(const EmbeddedCluster&) = delete;
  EmbeddedCluster& operator=(const EmbeddedCluster&) = delete;

  // Returns the options for Connect(), in this or another process.
  ConnectOptions connect_options() const;
  // Returns the path of the token for the Admin service.
  std::string admin_token_file() const;
  pid_t coordinator_pid() const;
  // Returns the workers' process ids in the order of their worker ids,
  // "worker-0" first.
  std::vector<pid_t> worker_pids() const;

 private:
  class Impl;
  explicit EmbeddedCluster(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_EMBEDDED_CLUSTER_H_
