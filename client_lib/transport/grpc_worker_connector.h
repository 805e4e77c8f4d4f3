// Connects to workers over gRPC.
#ifndef CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_
#define CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_

#include <memory>

#include "absl/time/time.h"
#include "client_lib/session/model/links.h"
#include "common/net/channel_options.h"
#include "common/net/channel_pool.h"
#include "common/net/tls/tls.h"

namespace djinn {

// Default number of bulk connections per stream. Each costs a connection and a
// thread on this side. On one host with two busy cores, 128 MiB took 174, 175
// and 171 ms down and 364, 307 and 320 ms up over 1, 2 and 4 connections
// (medians): on one host, copies and checksums limit the rate. The second
// connection helps on networks, where the window of one connection, or its
// losses, limit the rate.
inline constexpr int kDefaultBulkChannels = 2;

// Returns the process's channels to workers, including idle channels that are
// kept for the next session. Never destroyed. A forked child cannot use the
// channels, because their connections and threads are its parent's;
// fork_guard.h keeps the child from opening a session.
ChannelPool* WorkerChannels();

// Makes a connector, whose Connect() fails with MakeChannel()'s errors. A
// transfer uses up to `bulk_channels` bulk connections at the same time.
// `channels` must outlive the connector and its streams. A worker that sends
// nothing for `silence`, at least kMinSilence, breaks the stream.
std::unique_ptr<WorkerConnector> MakeGrpcWorkerConnector(
    const ChannelSecurity& security = {},
    int bulk_channels = kDefaultBulkChannels,
    ChannelPool* channels = WorkerChannels(),
    absl::Duration silence = kDefaultSilence);

}  // namespace djinn

#endif  // CLIENT_LIB_TRANSPORT_GRPC_WORKER_CONNECTOR_H_
