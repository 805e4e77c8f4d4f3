// Makes Pull calls to other workers over gRPC.
#ifndef GPU_WORKER_PULL_GRPC_PEERS_H_
#define GPU_WORKER_PULL_GRPC_PEERS_H_

#include <functional>
#include <memory>
#include <string>

#include "common/metrics/exposition.h"
#include "common/net/channel_options.h"
#include "common/net/channel_pool.h"
#include "common/net/tls/tls.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/pull/peer_call.h"

namespace djinn::worker {

// Receives the socket at which workers on a peer's machine reach that peer,
// whenever the peer answers a call. Any thread calls it, without locks.
using PullSocketListener =
    std::function<void(const v1::Peer& peer, const std::string& socket)>;

// Maximum number of Pull calls on one channel. Leaves streams free, because
// calls that wait for their offers must not block other calls.
inline constexpr int kMaxPullsPerChannel = kMaxConcurrentStreams / 2;

// Open() returns the errors of MakeChannel(). `channels`, whose channels have
// up to kMaxPullsPerChannel users, must outlive the connector and its calls.
// `listener` may be null.
std::unique_ptr<PeerConnector> MakeGrpcPeers(
    ChannelSecurity security, ChannelPool* channels,
    PullSocketListener listener = nullptr);

// Adds what became of connections to other workers to a scrape.
void CollectChannels(const ChannelPool::Counts& counts, Exposition* out);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_GRPC_PEERS_H_
