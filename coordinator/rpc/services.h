// Makes the coordinator's services, as adapters of gRPC without a state of
// their own. What they are given must outlive the server at which they are
// registered. All are thread-safe. `calls` counts the ends of streams; null:
// they are not counted. `unproven` hears of peers that showed a token; null:
// nobody hears of them.
#ifndef COORDINATOR_RPC_SERVICES_H_
#define COORDINATOR_RPC_SERVICES_H_

#include <functional>
#include <memory>
#include <string>

#include "common/net/call_metrics.h"
#include "common/net/unproven_connections.h"
#include "common/trace/span.h"
#include "coordinator/admin/config_reloader.h"
#include "coordinator/admin/quota_setter.h"
#include "coordinator/config/operators.h"
#include "coordinator/config/tenants.h"
#include "coordinator/graphs/graph_intake.h"
#include "coordinator/graphs/graph_store.h"
#include "coordinator/tables/cluster_state.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace djinn::coordinator {

// Serves Session.Attach: one reactor per stream. `spans` takes the spans of
// leases, migrations and recoveries; null: none are made.
std::unique_ptr<grpc::Service> MakeSessionService(
    const Tenants* tenants, ClusterState* cluster, GraphStore* graphs,
    GraphIntake* intake, SpanSink* spans, CallMetrics* calls,
    UnprovenConnections* unproven);

// Serves WorkerRegistry.Synchronize: one reactor per stream.
std::unique_ptr<grpc::Service> MakeWorkerRegistryService(
    const Credentials* credentials, ClusterState* cluster, CallMetrics* calls,
    UnprovenConnections* unproven);

// Serves WorkerDeparture.Leave.
std::unique_ptr<grpc::Service> MakeWorkerDepartureService(
    const Credentials* credentials, ClusterState* cluster,
    UnprovenConnections* unproven);

// Serves Admin: what operators see, and the little that they change, for each
// as their roles allow. The log has an "audit" line for every change and every
// refusal of one. Errors are those of admin.proto.
std::unique_ptr<grpc::Service> MakeAdminService(const Credentials* credentials,
                                                ClusterState* cluster,
                                                GraphStore* graphs,
                                                ConfigReloader* reloader,
                                                QuotaSetter* quotas,
                                                UnprovenConnections* unproven);

// Answers every call at a coordinator that does not lead. Admin.GetVersion says
// to operators that the coordinator follows; all else is Unavailable
// (NOT_LEADER) with the address that `leader` returns, empty when it is not
// known. Any thread calls `leader`.
std::unique_ptr<grpc::CallbackGenericService> MakeFollowerService(
    const Credentials* credentials, std::function<std::string()> leader,
    UnprovenConnections* unproven);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_RPC_SERVICES_H_
