// Pull calls to other workers over gRPC.
#ifndef GPU_WORKER_PULL_GRPC_PEERS_H_
#define GPU_WORKER_PULL_GRPC_PEERS_H_

#include <functional>
#include <memory>
#include <string>

#include "common/net/channel_options.h"
#include "common/net/channel_pool.h"
#include "common/net/tls.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/pull/peer_call.h"

namespace djinn::worker {

// Hears at which socket the peer says that workers on its machine find it, with
// every call that it answers; called by any thread, without locks.
using PullSocketListener =
    std::function<void(const v1::Peer& peer, const std::string& socket)>;

// Calls that wait for their offers must not keep others from a connection.
inline constexpr int kMaxPullsPerChannel = kMaxConcurrentStreams / 2;

// Open() has the errors of MakeChannel(). `channels`, whose channels have up to
// kMaxPullsPerChannel users, outlives the connector and its calls. `listener`
// may be null.
std::unique_ptr<PeerConnector> MakeGrpcPeers(
    ChannelSecurity security, ChannelPool* channels,
    PullSocketListener listener = nullptr);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_GRPC_PEERS_H_
