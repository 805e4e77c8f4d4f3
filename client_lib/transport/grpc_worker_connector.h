// Streams to workers over gRPC.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_
#define CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_

#include <memory>

#include "client_lib/session/worker_connector.h"
#include "common/net/tls.h"

namespace djinn {

// Connecting fails as MakeChannel() does.
std::unique_ptr<WorkerConnector> MakeGrpcWorkerConnector(
    const ChannelSecurity& security = {});

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_
