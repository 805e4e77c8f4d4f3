// Reaches a worker over shared memory where it offers that on this machine to
// this user, and by another connector everywhere else.
#ifndef CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_
#define CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_

#include <memory>

#include "client_lib/session/model/worker_connector.h"

namespace djinn {

// A worker that has a socket but refuses or does not greet in time closes the
// stream once, as a network would; from then on it is reached by `other`, which
// the log says once.
std::unique_ptr<WorkerConnector> MakeSharedMemoryConnector(
    std::unique_ptr<WorkerConnector> other);

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_
