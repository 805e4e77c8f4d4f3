// Runs a real etcd server as a child process, on free ports of this host and
// with its data in a temporary folder. It ends with this object, and with the
// process.
#ifndef COORDINATOR_TESTING_ETCD_SERVER_H_
#define COORDINATOR_TESTING_ETCD_SERVER_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace djinn::coordinator {

class EtcdServer {
 public:
  // Starts a server whose leases may be as short as a second, and waits until
  // it answers. Call it from the test's main thread, at whose end the server
  // ends. Returns NotFound when there is no etcd, or DeadlineExceeded with the
  // server's log.
  static absl::StatusOr<std::unique_ptr<EtcdServer>> Start();

  // Kills the server and removes its data.
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  // Returns the address for clients, "127.0.0.1:PORT".
  const std::string& endpoint() const { return endpoint_; }
  // Sends a signal to the server.
  void Signal(int signal);
  // Kills the server, as a machine's failure does. Its data stay.
  void Kill();
  // Starts a killed server with its data, and waits until it answers.
  absl::Status Restart();

 private:
  EtcdServer() = default;
  std::string Log() const;

  std::string program_;
  std::string folder_;
  std::string endpoint_;
  std::string peer_;
  pid_t pid_ = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TESTING_ETCD_SERVER_H_
