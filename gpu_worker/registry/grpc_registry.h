// Opens Synchronize streams over gRPC. Each goes to the coordinator that leads,
// as far as it is known; see common/net/coordinator_channels.h.
#ifndef GPU_WORKER_REGISTRY_GRPC_REGISTRY_H_
#define GPU_WORKER_REGISTRY_GRPC_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/tls/tls.h"
#include "gpu_worker/registry/synchronizer.h"

namespace djinn::worker {

struct GrpcRegistryOptions {
  // The coordinator's addresses, divided by commas.
  std::string coordinator;
  // Returns the token, for each call anew. Never logged. Any thread calls it.
  std::function<std::string()> join_token;
  ChannelSecurity security;
};

// Returns the errors of MakeChannel(). The first stream connects.
absl::StatusOr<std::unique_ptr<RegistryConnector>> MakeGrpcRegistry(
    const GrpcRegistryOptions& options);

}  // namespace djinn::worker

#endif  // GPU_WORKER_REGISTRY_GRPC_REGISTRY_H_
