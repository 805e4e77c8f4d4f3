#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/log/audit.h"
#include "common/log/log.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/lineage.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/queues.h"
#include "coordinator/admin/quota_setter.h"
#include "coordinator/admin/runs.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/jobs.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/rpc/services.h"
#include "coordinator/tables/page.h"
#include "djinn/v1/admin.grpc.pb.h"

namespace djinn::coordinator {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

// Answers a List request with the page that `list` returns for the request's
// range.
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

class Service : public v1::Admin::CallbackService {
 public:
  Service(const Credentials* credentials, ClusterState* cluster,
          GraphStore* graphs, ConfigReloader* reloader, QuotaSetter* quotas,
          UnprovenConnections* unproven)
      : credentials_(*credentials),
        cluster_(cluster),
        graphs_(graphs),
        reloader_(reloader),
        quotas_(quotas),
        unproven_(unproven) {}

  Reactor* ReloadConfig(Context* context,
                        const v1::ReloadConfigRequest* /*request*/,
                        v1::ReloadConfigResponse* out) override {
    std::string changes;
    return Change(
        context, Role::kAdmin, "ReloadConfig", "",
        [] { return std::string("the configuration in force"); },
        [&](const Operator&) -> absl::Status {
          DJINN_ASSIGN_OR_RETURN(ConfigReloader::Reloaded reloaded,
                                 reloader_->Reload());
          *out = std::move(reloaded.response);
          changes = std::move(reloaded.changes);
          return absl::OkStatus();
        },
        [&] { return changes; });
  }

  Reactor* ListWorkers(Context* context, const v1::ListWorkersRequest* request,
                       v1::ListWorkersResponse* out) override {
    return Answer(context, [&] {
      return AnswerPage(
          "workers", *request,
          [&](const PageRange& range) {
            return views::Workers(*cluster_, range);
          },
          out->mutable_workers(), out);
    });
  }

  Reactor* GetWorker(Context* context, const v1::GetWorkerRequest* request,
                     v1::WorkerInfo* out) override {
    return Answer(context, [&] {
      return AnswerOne(views::GetWorker(*cluster_, request->worker_id()), out);
    });
  }

  Reactor* ListSessions(Context* context,
                        const v1::ListSessionsRequest* request,
                        v1::ListSessionsResponse* out) override {
    return Answer(context, [&] {
      return AnswerPage(
          "sessions", *request,
          [&](const PageRange& range) {
            return views::Sessions(*cluster_, range);
          },
          out->mutable_sessions(), out);
    });
  }

  Reactor* GetSession(Context* context, const v1::GetSessionRequest* request,
                      v1::SessionInfo* out) override {
    return Answer(context, [&] {
      return AnswerOne(views::GetSession(*cluster_, request->session_id()),
                       out);
    });
  }

  Reactor* ListTenants(Context* context, const v1::ListTenantsRequest* request,
                       v1::ListTenantsResponse* out) override {
    return Answer(context, [&] {
      return AnswerPage(
          "tenants", *request,
          [&](const PageRange& range) {
            return views::TenantInfos(*cluster_, range);
          },
          out->mutable_tenants(), out);
    });
  }

  Reactor* GetTenant(Context* context, const v1::GetTenantRequest* request,
                     v1::TenantInfo* out) override {
    return Answer(context, [&] {
      return AnswerOne(views::GetTenant(*cluster_, request->tenant()), out);
    });
  }

  Reactor* ListLeases(Context* context, const v1::ListLeasesRequest* request,
                      v1::ListLeasesResponse* out) override {
    return Answer(context, [&] {
      return AnswerPage(
          "leases", *request,
          [&](const PageRange& range) {
            return views::Leases(*cluster_, range);
          },
          out->mutable_leases(), out);
    });
  }

  Reactor* GetLease(Context* context, const v1::GetLeaseRequest* request,
                    v1::LeaseInfo* out) override {
    return Answer(context, [&] {
      return AnswerOne(views::GetLease(*cluster_, request->lease_id()), out);
    });
  }

  Reactor* ListGraphs(Context* context, const v1::ListGraphsRequest* request,
                      v1::ListGraphsResponse* out) override {
    return Answer(context, [&] {
      return AnswerPage(
          "graphs", *request,
          [&](const PageRange& range) {
            Page<v1::GraphInfo> page = graphs_->List(range);
            views::DescribePlans(*cluster_, absl::MakeSpan(page.items));
            return page;
          },
          out->mutable_graphs(), out);
    });
  }

  Reactor* GetGraph(Context* context, const v1::GetGraphRequest* request,
                    v1::GraphInfo* out) override {
    return Answer(context, [&] {
      absl::StatusOr<v1::GraphInfo> graph =
          graphs_->Get(request->fingerprint());
      if (graph.ok())
        views::DescribePlans(*cluster_, absl::MakeSpan(&*graph, 1));
      return AnswerOne(std::move(graph), out);
    });
  }

  Reactor* ExplainSession(Context* context,
                          const v1::ExplainSessionRequest* request,
                          v1::SessionExplanation* out) override {
    return Answer(context, [&] {
      return AnswerOne(
          explain::ExplainSession(*cluster_, request->session_id()), out);
    });
  }

  Reactor* ExplainTenant(Context* context,
                         const v1::ExplainTenantRequest* request,
                         v1::TenantExplanation* out) override {
    return Answer(context, [&] {
      return AnswerOne(explain::ExplainTenant(*cluster_, request->tenant()),
                       out);
    });
  }

  Reactor* ListRuns(Context* context, const v1::ListRunsRequest* request,
                    v1::ListRunsResponse* out) override {
    Reactor* const reactor = context->DefaultReactor();
    if (absl::Status status = CheckToken(*context); !status.ok()) {
      reactor->Finish(ToGrpcStatus(status));
      return reactor;
    }
    // gRPC keeps reactor, request and response until the call is finished, even
    // if it is cancelled.
    runs::List(*cluster_, request->session_id(),
               [reactor, out](absl::StatusOr<v1::ListRunsResponse> runs) {
                 reactor->Finish(ToGrpcStatus(AnswerOne(std::move(runs), out)));
               });
    return reactor;
  }

  Reactor* ExplainRun(Context* context, const v1::ExplainRunRequest* request,
                      v1::RunExplanation* out) override {
    Reactor* const reactor = context->DefaultReactor();
    if (absl::Status status = CheckToken(*context); !status.ok()) {
      reactor->Finish(ToGrpcStatus(status));
      return reactor;
    }
    // gRPC keeps the pointers valid, as in ListRuns().
    runs::Explain(
        *cluster_, *request,
        [reactor, out](absl::StatusOr<v1::RunExplanation> explanation) {
          reactor->Finish(ToGrpcStatus(AnswerOne(std::move(explanation), out)));
        });
    return reactor;
  }

  Reactor* GetLineage(Context* context, const v1::GetLineageRequest* request,
                      v1::SessionLineage* out) override {
    Reactor* const reactor = context->DefaultReactor();
    if (absl::Status status = CheckToken(*context); !status.ok()) {
      reactor->Finish(ToGrpcStatus(status));
      return reactor;
    }
    // gRPC keeps the pointers valid, as in ListRuns().
    lineage::Get(
        *cluster_, *request,
        [reactor, out](absl::StatusOr<v1::SessionLineage> lineage) {
          reactor->Finish(ToGrpcStatus(AnswerOne(std::move(lineage), out)));
        });
    return reactor;
  }

  Reactor* TryPlacement(Context* context,
                        const v1::TryPlacementRequest* request,
                        v1::TryPlacementResponse* out) override {
    return Answer(context, [&] {
      return AnswerOne(explain::TryPlacement(*cluster_, *request), out);
    });
  }

  Reactor* TryQuota(Context* context, const v1::TryQuotaRequest* request,
                    v1::TryQuotaResponse* out) override {
    return Answer(context, [&] {
      return AnswerOne(quota::Try(*cluster_, *request), out);
    });
  }

  Reactor* SetQuota(Context* context, const v1::SetQuotaRequest* request,
                    v1::TenantInfo* out) override {
    return Change(
        context, Role::kOperator, "SetQuota", request->tenant(),
        [&] { return quotas_->TextOf(request->tenant()); },
        [&](const Operator& caller) {
          return AnswerOne(quotas_->Set(*request, caller.name), out);
        },
        [&] { return QuotaSetter::Text(*out); });
  }

  Reactor* UnsetQuota(Context* context, const v1::UnsetQuotaRequest* request,
                      v1::TenantInfo* out) override {
    return Change(
        context, Role::kOperator, "UnsetQuota", request->tenant(),
        [&] { return quotas_->TextOf(request->tenant()); },
        [&](const Operator&) {
          return AnswerOne(quotas_->Unset(*request), out);
        },
        [&] { return QuotaSetter::Text(*out); });
  }

  Reactor* ListQueues(Context* context, const v1::ListQueuesRequest* request,
                      v1::ListQueuesResponse* out) override {
    return Answer(context, [&] {
      return AnswerPage(
          "queues", *request,
          [&](const PageRange& range) {
            return queues::List(*cluster_, range);
          },
          out->mutable_queues(), out);
    });
  }

  Reactor* GetQueue(Context* context, const v1::GetQueueRequest* request,
                    v1::QueueInfo* out) override {
    return Answer(context, [&] {
      return AnswerOne(queues::Get(*cluster_, request->tenant()), out);
    });
  }

  Reactor* StopQueue(Context* context, const v1::StopQueueRequest* request,
                     v1::QueueInfo* out) override {
    return Change(
        context, Role::kOperator, "StopQueue", request->tenant(),
        [&] { return QueueOf(request->tenant()); },
        [&](const Operator&) {
          return AnswerOne(
              queues::Stop(*cluster_, request->tenant(), request->drain()),
              out);
        },
        [&] { return QueueText(*out); });
  }

  Reactor* ResumeQueue(Context* context, const v1::ResumeQueueRequest* request,
                       v1::QueueInfo* out) override {
    return Change(
        context, Role::kOperator, "ResumeQueue", request->tenant(),
        [&] { return QueueOf(request->tenant()); },
        [&](const Operator&) {
          return AnswerOne(queues::Resume(*cluster_, request->tenant()), out);
        },
        [&] { return QueueText(*out); });
  }

  Reactor* GetVersion(Context* context,
                      const v1::GetVersionRequest* /*request*/,
                      v1::VersionInfo* out) override {
    return Answer(context, [&] {
      out->set_version(kVersion);
      MutexLock lock(&cluster_->mu);
      out->set_term(cluster_->term);
      return absl::OkStatus();
    });
  }

  Reactor* CordonWorker(Context* context,
                        const v1::CordonWorkerRequest* request,
                        v1::WorkerInfo* out) override {
    return Change(
        context, Role::kOperator, "CordonWorker", request->worker_id(),
        [&] {
          const absl::StatusOr<v1::WorkerInfo> worker =
              views::GetWorker(*cluster_, request->worker_id());
          return worker.ok() ? WorkerText(*worker) : "unknown";
        },
        [&](const Operator&) {
          return AnswerOne(
              operations::Cordon(*cluster_, request->worker_id(),
                                 request->cordoned(), request->drain()),
              out);
        },
        [&] { return WorkerText(*out); });
  }

  Reactor* MigrateSession(Context* context,
                          const v1::MigrateSessionRequest* request,
                          v1::MigrateSessionResponse* out) override {
    return Change(
        context, Role::kOperator, "MigrateSession",
        log::ShortId(request->session_id()), [] { return std::string("-"); },
        [&](const Operator&) {
          return AnswerOne(operations::MigrateSession(*cluster_, *request),
                           out);
        },
        [&] {
          std::vector<std::string> moves;
          for (const v1::MigrationInfo& one : out->migrations()) {
            moves.push_back(absl::StrCat("device ", one.virtual_device(),
                                         " from ", one.from_worker_id(), " to ",
                                         one.to_worker_id()));
          }
          return absl::StrJoin(moves, ", ");
        });
  }

  Reactor* ListRecordedJobs(Context* context,
                            const v1::ListRecordedJobsRequest* request,
                            v1::ListRecordedJobsResponse* out) override {
    return Answer(context, [&] {
      return AnswerPage(
          "recorded jobs", *request,
          [&](const PageRange& range) {
            return jobs::Recorded(*cluster_, range);
          },
          out->mutable_jobs(), out);
    });
  }

 private:
  // Answers the call with what `handle` returns, if the caller may see things.
  template <typename Handle>
  Reactor* Answer(Context* context, Handle handle) {
    Reactor* const reactor = context->DefaultReactor();
    absl::Status status = CheckToken(*context);
    if (status.ok()) status = handle();
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  // Answers a call that changes something, if the caller's role allows it, and
  // writes the audit line: `what` was done to `object`, and how `before` and
  // `after` describe it. `handle` gets the caller. A change that fails has no
  // after.
  template <typename Before, typename Handle, typename After>
  Reactor* Change(Context* context, Role needed, absl::string_view what,
                  absl::string_view object, Before before, Handle handle,
                  After after) {
    Reactor* const reactor = context->DefaultReactor();
    const absl::StatusOr<Operator> caller = Caller(*context, needed);
    // The line also names an operator whose role does not suffice.
    const absl::StatusOr<Operator> who =
        caller.ok() ? caller : Caller(*context, Role::kViewer);
    absl::Status status = caller.status();
    std::string was = "-", is = "-";
    if (status.ok()) {
      was = before();
      status = handle(*caller);
      if (status.ok()) is = after();
    }
    log::Audit({{"who", who.ok() ? who->name : "-"},
                {"role", who.ok() ? RoleName(who->role) : "-"},
                {"peer", context->peer()},
                {"what", what},
                {"object", object},
                {"before", was},
                {"after", is},
                {"result", status.ok() ? "OK" : ErrorReason(status)},
                {"error", status.message()}});
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  static std::string WorkerText(const v1::WorkerInfo& worker) {
    return worker.draining()   ? "drained"
           : worker.cordoned() ? "cordoned"
                               : "takes leases";
  }
  static std::string QueueText(const v1::QueueInfo& queue) {
    return !queue.has_stop()      ? "open"
           : queue.stop().drain() ? "drained"
                                  : "stopped";
  }
  std::string QueueOf(const std::string& tenant) const {
    const absl::StatusOr<v1::QueueInfo> queue = queues::Get(*cluster_, tenant);
    return queue.ok() ? QueueText(*queue) : "unknown";
  }

  absl::StatusOr<Operator> Caller(const Context& context, Role needed) const {
    DJINN_ASSIGN_OR_RETURN(const std::string token, ExtractBearer(context));
    absl::StatusOr<Operator> caller = credentials_.Admit(token, needed);
    if (caller.ok()) NoteProven(context, unproven_);
    return caller;
  }
  absl::Status CheckToken(const Context& context) const {
    return Caller(context, Role::kViewer).status();
  }

  const Credentials& credentials_;
  ClusterState* const cluster_;
  GraphStore* const graphs_;
  ConfigReloader* const reloader_;
  QuotaSetter* const quotas_;
  UnprovenConnections* const unproven_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(const Credentials* credentials,
                                                ClusterState* cluster,
                                                GraphStore* graphs,
                                                ConfigReloader* reloader,
                                                QuotaSetter* quotas,
                                                UnprovenConnections* unproven) {
  return std::make_unique<Service>(credentials, cluster, graphs, reloader,
                                   quotas, unproven);
}

}  // namespace djinn::coordinator
