// Serves Session.Attach over gRPC: one reactor per stream, and no state of its
// own.
#ifndef COORDINATOR_RPC_GRPC_SESSION_SERVICE_H_
#define COORDINATOR_RPC_GRPC_SESSION_SERVICE_H_

#include "coordinator/config/tenants.h"
#include "coordinator/graphs/graph_intake.h"
#include "coordinator/graphs/graph_store.h"
#include "coordinator/tables/cluster_state.h"
#include "djinn/v1/session.grpc.pb.h"

namespace djinn::coordinator {

// Thread-safe.
class GrpcSessionService
    : public v1::Session::WithRawCallbackMethod_Attach<v1::Session::Service> {
 public:
  // All arguments must outlive the server at which this is registered.
  GrpcSessionService(const Tenants* tenants, ClusterState* cluster,
                     GraphStore* graphs, GraphIntake* intake)
      : tenants_(tenants),
        cluster_(cluster),
        graphs_(graphs),
        intake_(intake) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  const Tenants* const tenants_;
  ClusterState* const cluster_;
  GraphStore* const graphs_;
  GraphIntake* const intake_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_RPC_GRPC_SESSION_SERVICE_H_
