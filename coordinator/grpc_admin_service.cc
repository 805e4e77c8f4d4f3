#include "coordinator/grpc_admin_service.h"

#include <iterator>
#include <utility>

#include "absl/types/span.h"
#include "common/error.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "coordinator/page.h"

namespace djinn::coordinator {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

// Answers a List request with the page that `list` makes of its range.
template <typename Request, typename Response, typename Item, typename List>
absl::Status AnswerPage(absl::string_view name, const Request& request,
                        List list,
                        google::protobuf::RepeatedPtrField<Item>* items,
                        Response* out) {
  DJINN_ASSIGN_OR_RETURN(
      const PageRange range,
      ParsePageRange(name, request.page_size(), request.page_token()));
  DJINN_ASSIGN_OR_RETURN(Page<Item> page,
                         absl::StatusOr<Page<Item>>(list(range)));
  items->Assign(std::make_move_iterator(page.items.begin()),
                std::make_move_iterator(page.items.end()));
  out->set_next_page_token(MakePageToken(name, page.last_key));
  return absl::OkStatus();
}

template <typename Item>
absl::Status AnswerOne(absl::StatusOr<Item> item, Item* out) {
  if (item.ok()) *out = *std::move(item);
  return item.status();
}

}  // namespace

template <typename Handle>
Reactor* GrpcAdminService::Answer(Context* context, Handle handle) {
  Reactor* const reactor = context->DefaultReactor();
  absl::Status status = CheckToken(*context);
  if (status.ok()) status = handle();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::Status GrpcAdminService::CheckToken(const Context& context) const {
  DJINN_ASSIGN_OR_RETURN(const std::string token, ExtractBearer(context));
  if (TokensEqual(token, admin_token_)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                   "not the admin token");
}

Reactor* GrpcAdminService::ReloadConfig(
    Context* context, const v1::ReloadConfigRequest* /*request*/,
    v1::ReloadConfigResponse* out) {
  return Answer(context, [&] { return AnswerOne(reloader_->Reload(), out); });
}

Reactor* GrpcAdminService::ListWorkers(Context* context,
                                       const v1::ListWorkersRequest* request,
                                       v1::ListWorkersResponse* out) {
  return Answer(context, [&] {
    return AnswerPage(
        "workers", *request,
        [&](const PageRange& range) { return cluster_->Workers(range); },
        out->mutable_workers(), out);
  });
}

Reactor* GrpcAdminService::GetWorker(Context* context,
                                     const v1::GetWorkerRequest* request,
                                     v1::WorkerInfo* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->GetWorker(request->worker_id()), out);
  });
}

Reactor* GrpcAdminService::ListSessions(Context* context,
                                        const v1::ListSessionsRequest* request,
                                        v1::ListSessionsResponse* out) {
  return Answer(context, [&] {
    return AnswerPage(
        "sessions", *request,
        [&](const PageRange& range) { return cluster_->Sessions(range); },
        out->mutable_sessions(), out);
  });
}

Reactor* GrpcAdminService::GetSession(Context* context,
                                      const v1::GetSessionRequest* request,
                                      v1::SessionInfo* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->GetSession(request->session_id()), out);
  });
}

Reactor* GrpcAdminService::ListTenants(Context* context,
                                       const v1::ListTenantsRequest* request,
                                       v1::ListTenantsResponse* out) {
  return Answer(context, [&] {
    return AnswerPage(
        "tenants", *request,
        [&](const PageRange& range) { return cluster_->TenantInfos(range); },
        out->mutable_tenants(), out);
  });
}

Reactor* GrpcAdminService::GetTenant(Context* context,
                                     const v1::GetTenantRequest* request,
                                     v1::TenantInfo* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->GetTenant(request->tenant()), out);
  });
}

Reactor* GrpcAdminService::ListLeases(Context* context,
                                      const v1::ListLeasesRequest* request,
                                      v1::ListLeasesResponse* out) {
  return Answer(context, [&] {
    return AnswerPage(
        "leases", *request,
        [&](const PageRange& range) { return cluster_->Leases(range); },
        out->mutable_leases(), out);
  });
}

Reactor* GrpcAdminService::GetLease(Context* context,
                                    const v1::GetLeaseRequest* request,
                                    v1::LeaseInfo* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->GetLease(request->lease_id()), out);
  });
}

Reactor* GrpcAdminService::ListGraphs(Context* context,
                                      const v1::ListGraphsRequest* request,
                                      v1::ListGraphsResponse* out) {
  return Answer(context, [&] {
    return AnswerPage(
        "graphs", *request,
        [&](const PageRange& range) {
          Page<v1::GraphInfo> page = graphs_->List(range);
          cluster_->DescribePlans(absl::MakeSpan(page.items));
          return page;
        },
        out->mutable_graphs(), out);
  });
}

Reactor* GrpcAdminService::GetGraph(Context* context,
                                    const v1::GetGraphRequest* request,
                                    v1::GraphInfo* out) {
  return Answer(context, [&] {
    absl::StatusOr<v1::GraphInfo> graph = graphs_->Get(request->fingerprint());
    if (graph.ok()) cluster_->DescribePlans(absl::MakeSpan(&*graph, 1));
    return AnswerOne(std::move(graph), out);
  });
}

Reactor* GrpcAdminService::ExplainSession(
    Context* context, const v1::ExplainSessionRequest* request,
    v1::SessionExplanation* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->ExplainSession(request->session_id()), out);
  });
}

Reactor* GrpcAdminService::ExplainTenant(
    Context* context, const v1::ExplainTenantRequest* request,
    v1::TenantExplanation* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->ExplainTenant(request->tenant()), out);
  });
}

Reactor* GrpcAdminService::ListRuns(Context* context,
                                    const v1::ListRunsRequest* request,
                                    v1::ListRunsResponse* out) {
  Reactor* const reactor = context->DefaultReactor();
  if (absl::Status status = CheckToken(*context); !status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }
  // gRPC keeps all of these until the call is finished, cancelled or not.
  cluster_->ListRuns(
      request->session_id(),
      [reactor, out](absl::StatusOr<v1::ListRunsResponse> runs) {
        reactor->Finish(ToGrpcStatus(AnswerOne(std::move(runs), out)));
      });
  return reactor;
}

Reactor* GrpcAdminService::ExplainRun(Context* context,
                                      const v1::ExplainRunRequest* request,
                                      v1::RunExplanation* out) {
  Reactor* const reactor = context->DefaultReactor();
  if (absl::Status status = CheckToken(*context); !status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }
  // As in ListRuns().
  cluster_->ExplainRun(
      *request, [reactor, out](absl::StatusOr<v1::RunExplanation> explanation) {
        reactor->Finish(ToGrpcStatus(AnswerOne(std::move(explanation), out)));
      });
  return reactor;
}

Reactor* GrpcAdminService::TryPlacement(Context* context,
                                        const v1::TryPlacementRequest* request,
                                        v1::TryPlacementResponse* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->TryPlacement(*request), out);
  });
}

Reactor* GrpcAdminService::TryQuota(Context* context,
                                    const v1::TryQuotaRequest* request,
                                    v1::TryQuotaResponse* out) {
  return Answer(context,
                [&] { return AnswerOne(cluster_->TryQuota(*request), out); });
}

Reactor* GrpcAdminService::ListQueues(Context* context,
                                      const v1::ListQueuesRequest* request,
                                      v1::ListQueuesResponse* out) {
  return Answer(context, [&] {
    return AnswerPage(
        "queues", *request,
        [&](const PageRange& range) { return cluster_->Queues(range); },
        out->mutable_queues(), out);
  });
}

Reactor* GrpcAdminService::GetQueue(Context* context,
                                    const v1::GetQueueRequest* request,
                                    v1::QueueInfo* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->GetQueue(request->tenant()), out);
  });
}

Reactor* GrpcAdminService::StopQueue(Context* context,
                                     const v1::StopQueueRequest* request,
                                     v1::QueueInfo* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->StopQueue(request->tenant(), request->drain()),
                     out);
  });
}

Reactor* GrpcAdminService::ResumeQueue(Context* context,
                                       const v1::ResumeQueueRequest* request,
                                       v1::QueueInfo* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->ResumeQueue(request->tenant()), out);
  });
}

Reactor* GrpcAdminService::GetVersion(Context* context,
                                      const v1::GetVersionRequest* /*request*/,
                                      v1::VersionInfo* out) {
  return Answer(context, [&] {
    out->set_version(kVersion);
    return absl::OkStatus();
  });
}

Reactor* GrpcAdminService::CordonWorker(Context* context,
                                        const v1::CordonWorkerRequest* request,
                                        v1::WorkerInfo* out) {
  return Answer(context, [&] {
    return AnswerOne(
        cluster_->CordonWorker(request->worker_id(), request->cordoned(),
                               request->drain()),
        out);
  });
}

Reactor* GrpcAdminService::MigrateSession(
    Context* context, const v1::MigrateSessionRequest* request,
    v1::MigrateSessionResponse* out) {
  return Answer(context, [&] {
    return AnswerOne(cluster_->MigrateSession(*request), out);
  });
}

Reactor* GrpcAdminService::ListRecordedJobs(
    Context* context, const v1::ListRecordedJobsRequest* request,
    v1::ListRecordedJobsResponse* out) {
  return Answer(context, [&] {
    return AnswerPage(
        "recorded jobs", *request,
        [&](const PageRange& range) { return cluster_->RecordedJobs(range); },
        out->mutable_jobs(), out);
  });
}

}  // namespace djinn::coordinator
