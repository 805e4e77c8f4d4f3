// Pull calls to other workers over gRPC.
#ifndef GPU_WORKER_PULL_GRPC_PEERS_H_
#define GPU_WORKER_PULL_GRPC_PEERS_H_

#include <functional>
#include <memory>
#include <string>

#include "common/net/tls.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/pull/peer_call.h"

namespace djinn::worker {

// Hears at which socket the peer says that workers on its machine find it, with
// every call that it answers; called by any thread, without locks.
using PullSocketListener =
    std::function<void(const v1::Peer& peer, const std::string& socket)>;

// Connects at the first call to each peer. Open() has the errors of
// MakeChannel(). `listener` may be null.
std::unique_ptr<PeerConnector> MakeGrpcPeers(
    ChannelSecurity security, PullSocketListener listener = nullptr);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_GRPC_PEERS_H_
