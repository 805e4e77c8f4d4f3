// Streams to workers over gRPC.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_
#define CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_

#include <memory>

#include "client_lib/session/model/worker_connector.h"
#include "common/net/channel_pool.h"
#include "common/net/tls.h"

namespace djinn {

// Each costs a connection, and a thread on this side. On one host of two busy
// cores, 128 MiB took 174, 175 and 171 ms down and 364, 307 and 320 ms up over
// 1, 2 and 4 (medians): copies and checksums are the limit there, not streams.
// The second is for networks, where one connection's window or loss is.
inline constexpr int kDefaultBulkChannels = 2;

// The process' channels to workers, those that wait for the next session too.
// Never destroyed. Of no use to a forked child, whose connections and threads
// are its parent's: fork_guard.h keeps it from opening a session.
ChannelPool* WorkerChannels();

// Connecting fails as MakeChannel() does. Tensors move over `bulk_channels`
// connections at once. `channels` outlives the connector and its streams.
std::unique_ptr<WorkerConnector> MakeGrpcWorkerConnector(
    const ChannelSecurity& security = {},
    int bulk_channels = kDefaultBulkChannels,
    ChannelPool* channels = WorkerChannels());

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_
