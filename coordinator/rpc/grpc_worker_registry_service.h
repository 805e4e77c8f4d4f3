// Serves WorkerRegistry.Synchronize over gRPC: one reactor per stream, and no
// state of its own.
#ifndef COORDINATOR_RPC_GRPC_WORKER_REGISTRY_SERVICE_H_
#define COORDINATOR_RPC_GRPC_WORKER_REGISTRY_SERVICE_H_

#include <string>
#include <utility>

#include "coordinator/tables/cluster_state.h"
#include "djinn/v1/worker_registry.grpc.pb.h"

namespace djinn::coordinator {

// Thread-safe.
class GrpcWorkerRegistryService
    : public v1::WorkerRegistry::WithRawCallbackMethod_Synchronize<
          v1::WorkerRegistry::Service> {
 public:
  // `cluster` must outlive the server at which this is registered.
  GrpcWorkerRegistryService(std::string join_token, ClusterState* cluster)
      : join_token_(std::move(join_token)), cluster_(cluster) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Synchronize(
      grpc::CallbackServerContext* context) override;

 private:
  const std::string join_token_;
  ClusterState* const cluster_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_RPC_GRPC_WORKER_REGISTRY_SERVICE_H_
