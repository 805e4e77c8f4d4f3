// A whole cluster for one program: a coordinator and workers as child processes
// of this one, on Unix sockets in a private folder.
//
// The children end when this object is destroyed or when this process ends in
// any way. Their programs are looked for in $DJINN_BIN_DIR, then beside this
// library.
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
  // 1 to 64.
  int workers = 1;
  // Device memory of each worker.
  uint64_t worker_memory_bytes = uint64_t{8} << 30;
  // Compute threads of each worker; 0: as many as there are cores.
  int worker_threads = 0;
  // What each worker computes on, as `device.kind` of its configuration says
  // it: "cpu", or "cuda:0", which all of them then share.
  std::string worker_device = "cpu";
  // Shared libraries with operators besides PyTorch's, which each worker loads:
  // absolute paths.
  std::vector<std::string> operator_libraries;
  // Bound on starting.
  absl::Duration start_timeout = absl::Seconds(60);
};

class DJINN_API EmbeddedCluster {
 public:
  // Returns when every worker has joined. NotFound when a program is missing,
  // DeadlineExceeded, with the end of the children's logs, when one does not
  // come up.
  static absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(
      const EmbeddedClusterOptions& options = {});

  // Stops the children and waits for them.
  ~EmbeddedCluster();
  EmbeddedCluster(const EmbeddedCluster&) = delete;
  EmbeddedCluster& operator=(const EmbeddedCluster&) = delete;

  // What Connect() needs, here or in another process.
  ConnectOptions connect_options() const;
  // Token for the Admin service.
  std::string admin_token_file() const;
  pid_t coordinator_pid() const;
  // In the order of their ids, "worker-0" first.
  std::vector<pid_t> worker_pids() const;

 private:
  class Impl;
  explicit EmbeddedCluster(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_EMBEDDED_CLUSTER_H_
