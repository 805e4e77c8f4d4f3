// Serves the Admin service over gRPC: what operators see, and the little that
// they change. Errors are those of admin.proto.
#ifndef COORDINATOR_RPC_GRPC_ADMIN_SERVICE_H_
#define COORDINATOR_RPC_GRPC_ADMIN_SERVICE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/admin/config_reloader.h"
#include "coordinator/graphs/graph_store.h"
#include "coordinator/tables/cluster_state.h"
#include "djinn/v1/admin.grpc.pb.h"

namespace djinn::coordinator {

// Thread-safe.
class GrpcAdminService : public v1::Admin::CallbackService {
 public:
  // All arguments must outlive the server at which this is registered.
  GrpcAdminService(std::string admin_token, ClusterState* cluster,
                   GraphStore* graphs, ConfigReloader* reloader)
      : admin_token_(std::move(admin_token)),
        cluster_(cluster),
        graphs_(graphs),
        reloader_(reloader) {}

  grpc::ServerUnaryReactor* ReloadConfig(
      grpc::CallbackServerContext* context,
      const v1::ReloadConfigRequest* request,
      v1::ReloadConfigResponse* out) override;

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* out) override;
  grpc::ServerUnaryReactor* GetWorker(grpc::CallbackServerContext* context,
                                      const v1::GetWorkerRequest* request,
                                      v1::WorkerInfo* out) override;
  grpc::ServerUnaryReactor* ListSessions(
      grpc::CallbackServerContext* context,
      const v1::ListSessionsRequest* request,
      v1::ListSessionsResponse* out) override;
  // Accepts the full id or the shortened one.
  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest* request,
                                       v1::SessionInfo* out) override;
  grpc::ServerUnaryReactor* ListTenants(grpc::CallbackServerContext* context,
                                        const v1::ListTenantsRequest* request,
                                        v1::ListTenantsResponse* out) override;
  grpc::ServerUnaryReactor* GetTenant(grpc::CallbackServerContext* context,
                                      const v1::GetTenantRequest* request,
                                      v1::TenantInfo* out) override;
  grpc::ServerUnaryReactor* ListLeases(grpc::CallbackServerContext* context,
                                       const v1::ListLeasesRequest* request,
                                       v1::ListLeasesResponse* out) override;
  grpc::ServerUnaryReactor* GetLease(grpc::CallbackServerContext* context,
                                     const v1::GetLeaseRequest* request,
                                     v1::LeaseInfo* out) override;
  grpc::ServerUnaryReactor* ListGraphs(grpc::CallbackServerContext* context,
                                       const v1::ListGraphsRequest* request,
                                       v1::ListGraphsResponse* out) override;
  grpc::ServerUnaryReactor* GetGraph(grpc::CallbackServerContext* context,
                                     const v1::GetGraphRequest* request,
                                     v1::GraphInfo* out) override;
  grpc::ServerUnaryReactor* ExplainSession(
      grpc::CallbackServerContext* context,
      const v1::ExplainSessionRequest* request,
      v1::SessionExplanation* out) override;
  grpc::ServerUnaryReactor* ExplainTenant(
      grpc::CallbackServerContext* context,
      const v1::ExplainTenantRequest* request,
      v1::TenantExplanation* out) override;
  // ListRuns() and ExplainRun() wait for workers without keeping a thread.
  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const v1::ListRunsRequest* request,
                                     v1::ListRunsResponse* out) override;
  grpc::ServerUnaryReactor* ExplainRun(grpc::CallbackServerContext* context,
                                       const v1::ExplainRunRequest* request,
                                       v1::RunExplanation* out) override;
  grpc::ServerUnaryReactor* TryPlacement(
      grpc::CallbackServerContext* context,
      const v1::TryPlacementRequest* request,
      v1::TryPlacementResponse* out) override;
  grpc::ServerUnaryReactor* ListRecordedJobs(
      grpc::CallbackServerContext* context,
      const v1::ListRecordedJobsRequest* request,
      v1::ListRecordedJobsResponse* out) override;
  grpc::ServerUnaryReactor* MigrateSession(
      grpc::CallbackServerContext* context,
      const v1::MigrateSessionRequest* request,
      v1::MigrateSessionResponse* out) override;
  grpc::ServerUnaryReactor* TryQuota(grpc::CallbackServerContext* context,
                                     const v1::TryQuotaRequest* request,
                                     v1::TryQuotaResponse* out) override;
  grpc::ServerUnaryReactor* ListQueues(grpc::CallbackServerContext* context,
                                       const v1::ListQueuesRequest* request,
                                       v1::ListQueuesResponse* out) override;
  grpc::ServerUnaryReactor* GetQueue(grpc::CallbackServerContext* context,
                                     const v1::GetQueueRequest* request,
                                     v1::QueueInfo* out) override;
  grpc::ServerUnaryReactor* StopQueue(grpc::CallbackServerContext* context,
                                      const v1::StopQueueRequest* request,
                                      v1::QueueInfo* out) override;
  grpc::ServerUnaryReactor* ResumeQueue(grpc::CallbackServerContext* context,
                                        const v1::ResumeQueueRequest* request,
                                        v1::QueueInfo* out) override;
  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const v1::GetVersionRequest* request,
                                       v1::VersionInfo* out) override;
  grpc::ServerUnaryReactor* CordonWorker(grpc::CallbackServerContext* context,
                                         const v1::CordonWorkerRequest* request,
                                         v1::WorkerInfo* out) override;

 private:
  // Returns Unauthenticated unless the call has the admin token.
  absl::Status CheckToken(const grpc::CallbackServerContext& context) const;
  // Answers the call with what `handle` returns, if the token is right.
  template <typename Handle>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   Handle handle);

  const std::string admin_token_;
  ClusterState* const cluster_;
  GraphStore* const graphs_;
  ConfigReloader* const reloader_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_RPC_GRPC_ADMIN_SERVICE_H_
