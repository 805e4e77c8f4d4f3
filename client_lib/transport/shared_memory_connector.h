// Connects to a worker over shared memory if the worker offers that to this
// user on this machine, and by another connector otherwise.
#ifndef CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_
#define CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_

#include <memory>

#include "client_lib/session/model/links.h"

namespace djinn {

// Makes such a connector. A worker that has a socket but refuses the connection
// or does not greet in time closes the stream once, as a broken network would.
// From then on the connector uses `other` for it, and logs that once.
std::unique_ptr<WorkerConnector> MakeSharedMemoryConnector(
    std::unique_ptr<WorkerConnector> other);

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_
