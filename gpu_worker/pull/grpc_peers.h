// Pull calls to other workers over gRPC.
#ifndef GPU_WORKER_PULL_GRPC_PEERS_H_
#define GPU_WORKER_PULL_GRPC_PEERS_H_

#include <memory>

#include "common/net/tls.h"
#include "gpu_worker/pull/peer_pulls.h"

namespace djinn::worker {

// Connects at the first call to each peer. Open() has the errors of
// MakeChannel().
std::unique_ptr<PeerConnector> MakeGrpcPeers(ChannelSecurity security);

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_GRPC_PEERS_H_
