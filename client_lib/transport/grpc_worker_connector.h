// Streams to workers over gRPC.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_
#define CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_

#include <memory>

#include "client_lib/session/worker_connector.h"

namespace djinn {

// `insecure` allows workers that are neither on this host's loopback nor on a
// Unix socket; refused otherwise (FailedPrecondition, INSECURE_ADDRESS).
std::unique_ptr<WorkerConnector> MakeGrpcWorkerConnector(bool insecure = false);

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_
