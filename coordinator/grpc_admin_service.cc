#include "coordinator/grpc_admin_service.h"

#include <map>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/log/log.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"

namespace djinn::coordinator {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

template <typename Item>
void CopyTo(const std::vector<Item>& items,
            google::protobuf::RepeatedPtrField<Item>* out) {
  out->Assign(items.begin(), items.end());
}

// Copies the first item that fits, or says that there is none.
template <typename Item, typename Matches>
absl::Status PickOne(const std::vector<Item>& items, absl::string_view what,
                     absl::string_view name, Matches matches, Item* out) {
  for (const Item& item : items) {
    if (matches(item)) {
      *out = item;
      return absl::OkStatus();
    }
  }
  return MakeError(absl::StatusCode::kNotFound, absl::StrCat(what, "_UNKNOWN"),
                   absl::StrCat("there is no \"", name, "\""));
}

void SetRuns(const std::map<std::string, uint64_t>& runs,
             v1::GraphInfo* graph) {
  const auto found = runs.find(absl::HexStringToBytes(graph->fingerprint()));
  if (found != runs.end()) graph->set_run_count(found->second);
}

}  // namespace

template <typename Handle>
Reactor* GrpcAdminService::Answer(Context* context, Handle handle) {
  Reactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<std::string> token = ExtractBearer(*context);
  absl::Status status = token.status();
  if (token.ok()) {
    status = TokensEqual(*token, admin_token_)
                 ? handle()
                 : MakeError(absl::StatusCode::kUnauthenticated,
                             "TOKEN_UNKNOWN", "not the admin token");
  }
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

Reactor* GrpcAdminService::ListWorkers(Context* context,
                                       const v1::ListWorkersRequest*,
                                       v1::ListWorkersResponse* out) {
  return Answer(context, [&] {
    CopyTo(cluster_->Workers(), out->mutable_workers());
    return absl::OkStatus();
  });
}

Reactor* GrpcAdminService::GetWorker(Context* context,
                                     const v1::GetWorkerRequest* request,
                                     v1::WorkerInfo* out) {
  return Answer(context, [&] {
    return PickOne(
        cluster_->Workers(), "WORKER", request->worker_id(),
        [&](const auto& i) { return i.worker_id() == request->worker_id(); },
        out);
  });
}

Reactor* GrpcAdminService::ListSessions(Context* context,
                                        const v1::ListSessionsRequest*,
                                        v1::ListSessionsResponse* out) {
  return Answer(context, [&] {
    CopyTo(cluster_->Sessions(), out->mutable_sessions());
    return absl::OkStatus();
  });
}

Reactor* GrpcAdminService::GetSession(Context* context,
                                      const v1::GetSessionRequest* request,
                                      v1::SessionInfo* out) {
  return Answer(context, [&] {
    const std::string id = log::ShortId(request->session_id());
    return PickOne(
        cluster_->Sessions(), "SESSION", id,
        [&](const auto& info) { return info.session_id() == id; }, out);
  });
}

Reactor* GrpcAdminService::ListTenants(Context* context,
                                       const v1::ListTenantsRequest*,
                                       v1::ListTenantsResponse* out) {
  return Answer(context, [&] {
    CopyTo(cluster_->TenantInfos(), out->mutable_tenants());
    return absl::OkStatus();
  });
}

Reactor* GrpcAdminService::GetTenant(Context* context,
                                     const v1::GetTenantRequest* request,
                                     v1::TenantInfo* out) {
  return Answer(context, [&] {
    return PickOne(
        cluster_->TenantInfos(), "TENANT", request->tenant(),
        [&](const auto& info) { return info.tenant() == request->tenant(); },
        out);
  });
}

Reactor* GrpcAdminService::ListLeases(Context* context,
                                      const v1::ListLeasesRequest*,
                                      v1::ListLeasesResponse* out) {
  return Answer(context, [&] {
    CopyTo(cluster_->Leases(), out->mutable_leases());
    return absl::OkStatus();
  });
}

Reactor* GrpcAdminService::GetLease(Context* context,
                                    const v1::GetLeaseRequest* request,
                                    v1::LeaseInfo* out) {
  return Answer(context, [&] {
    return PickOne(
        cluster_->Leases(), "LEASE", request->lease_id(),
        [&](const auto& i) { return i.lease_id() == request->lease_id(); },
        out);
  });
}

Reactor* GrpcAdminService::ListGraphs(Context* context,
                                      const v1::ListGraphsRequest*,
                                      v1::ListGraphsResponse* out) {
  return Answer(context, [&] {
    const std::map<std::string, uint64_t> runs = cluster_->RunCounts();
    for (v1::GraphInfo& graph : graphs_->List()) {
      SetRuns(runs, &graph);
      *out->add_graphs() = std::move(graph);
    }
    return absl::OkStatus();
  });
}

Reactor* GrpcAdminService::GetGraph(Context* context,
                                    const v1::GetGraphRequest* request,
                                    v1::GraphInfo* out) {
  return Answer(context, [&]() -> absl::Status {
    absl::StatusOr<v1::GraphInfo> graph = graphs_->Get(request->fingerprint());
    if (!graph.ok()) return graph.status();
    SetRuns(cluster_->RunCounts(), &*graph);
    *out = *std::move(graph);
    return absl::OkStatus();
  });
}

}  // namespace djinn::coordinator
