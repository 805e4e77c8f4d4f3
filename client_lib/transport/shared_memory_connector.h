// Connects to a worker over shared memory if the worker offers this to clients
// of this user on this machine, and by another connector otherwise.
#ifndef CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_
#define CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_

#include <memory>

#include "client_lib/session/model/links.h"

namespace djinn {

// Makes a connector that uses shared memory where possible and `other`
// elsewhere. A worker that has a socket but refuses the connection, or does not
// greet in time, closes the stream once, as a broken network would. From then
// on the connector uses `other` for this worker, and logs the change once.
std::unique_ptr<WorkerConnector> MakeSharedMemoryConnector(
    std::unique_ptr<WorkerConnector> other);

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_SHARED_MEMORY_CONNECTOR_H_
