// Connects a session to the worker of a lease. Implementations: gRPC
// (client_lib/transport/grpc_worker_connector.h) and fakes in tests.
#ifndef CLIENT_LIB_SESSION_MODEL_WORKER_CONNECTOR_H_
#define CLIENT_LIB_SESSION_MODEL_WORKER_CONNECTOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/transport/stream.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

// Thread-safe.
class WorkerConnector {
 public:
  virtual ~WorkerConnector() = default;

  // Returns a stream to the lease's worker that is not started. Does not wait
  // for the network: a worker that cannot be reached closes the stream. The
  // caller sends Hello.
  virtual absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string& session_id) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_WORKER_CONNECTOR_H_
