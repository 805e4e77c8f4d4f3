#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "coordinator/console/admin_reader.h"
#include "djinn/v1/admin.grpc.pb.h"

namespace djinn::console {
namespace {

using Stub = v1::Admin::StubInterface;

constexpr int kPageSize = 1000;
// Bounds a list. A cluster with more objects of a kind is not shown.
constexpr int kMaxPages = 200;

class GrpcAdminReader : public AdminReader {
 public:
  GrpcAdminReader(CoordinatorChannels* channels, std::string token,
                  absl::Duration deadline)
      : channels_(channels), token_(std::move(token)), deadline_(deadline) {}

  absl::StatusOr<v1::ListWorkersResponse> Workers() override {
    return ListAll<v1::ListWorkersRequest>(&Stub::ListWorkers);
  }
  absl::StatusOr<v1::ListSessionsResponse> Sessions() override {
    return ListAll<v1::ListSessionsRequest>(&Stub::ListSessions);
  }
  absl::StatusOr<v1::ListTenantsResponse> Tenants() override {
    return ListAll<v1::ListTenantsRequest>(&Stub::ListTenants);
  }
  absl::StatusOr<v1::ListQueuesResponse> Queues() override {
    return ListAll<v1::ListQueuesRequest>(&Stub::ListQueues);
  }
  absl::StatusOr<v1::ListLeasesResponse> Leases() override {
    return ListAll<v1::ListLeasesRequest>(&Stub::ListLeases);
  }
  absl::StatusOr<v1::ListGraphsResponse> Graphs() override {
    return ListAll<v1::ListGraphsRequest>(&Stub::ListGraphs);
  }
  absl::StatusOr<v1::GraphInfo> Graph(const std::string& fingerprint) override {
    v1::GetGraphRequest request;
    request.set_fingerprint(fingerprint);
    return Call(&Stub::GetGraph, request);
  }
  absl::StatusOr<v1::ListRunsResponse> Runs(
      const std::string& session_id) override {
    v1::ListRunsRequest request;
    request.set_session_id(session_id);
    return Call(&Stub::ListRuns, request);
  }
  absl::StatusOr<v1::SessionExplanation> ExplainSession(
      const std::string& session_id) override {
    v1::ExplainSessionRequest request;
    request.set_session_id(session_id);
    return Call(&Stub::ExplainSession, request);
  }
  absl::StatusOr<v1::TenantExplanation> ExplainTenant(
      const std::string& tenant) override {
    v1::ExplainTenantRequest request;
    request.set_tenant(tenant);
    return Call(&Stub::ExplainTenant, request);
  }

 private:
  template <typename Request, typename Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&,
                                        Response*);

  // Tries one address after the other until one answers that leads. All tries
  // share the deadline.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(Method<Request, Response> method,
                                const Request& request) {
    const auto deadline = std::chrono::system_clock::now() +
                          absl::ToChronoMilliseconds(deadline_);
    for (;;) {
      const CoordinatorChannels::Target target = channels_->current();
      grpc::ClientContext context;
      context.set_deadline(deadline);
      PutBearer(token_, &context);
      Response response;
      const auto stub = v1::Admin::NewStub(target.channel);
      const absl::Status status =
          FromGrpcStatus(((*stub).*method)(&context, request, &response));
      if (status.ok()) return response;
      // A coordinator that hangs lets the deadline pass: the next call asks
      // another one.
      const bool silent = absl::IsDeadlineExceeded(status);
      if (!silent && !absl::IsUnavailable(status)) return status;
      if (!channels_->NoteFailure(target, status) || silent) return status;
    }
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> ListAll(Method<Request, Response> list) {
    Request request;
    request.set_page_size(kPageSize);
    Response all;
    for (int page = 0; page < kMaxPages; ++page) {
      DJINN_ASSIGN_OR_RETURN(Response next, Call(list, request));
      request.set_page_token(next.next_page_token());
      all.MergeFrom(next);
      if (!request.page_token().empty()) continue;
      all.clear_next_page_token();
      return all;
    }
    return MakeError(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_OBJECTS",
        absl::StrCat("the cluster has more than ", kMaxPages * kPageSize,
                     " objects of one kind; the console shows no "
                     "cluster of that size"));
  }

  CoordinatorChannels* const channels_;
  const std::string token_;
  const absl::Duration deadline_;
};

}  // namespace

std::unique_ptr<AdminReader> MakeGrpcAdminReader(CoordinatorChannels* channels,
                                                 std::string token,
                                                 absl::Duration deadline) {
  return std::make_unique<GrpcAdminReader>(channels, std::move(token),
                                           deadline);
}

}  // namespace djinn::console
