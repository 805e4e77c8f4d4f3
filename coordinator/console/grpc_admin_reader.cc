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

constexpr std::chrono::seconds kDeadline(5);
constexpr int kPageSize = 1000;
// Bounds a list. A cluster with more objects of a kind is not shown.
constexpr int kMaxPages = 200;

class GrpcAdminReader : public AdminReader {
 public:
  GrpcAdminReader(const std::shared_ptr<grpc::Channel>& channel,
                  std::string token)
      : stub_(v1::Admin::NewStub(channel)), token_(std::move(token)) {}

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

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(Method<Request, Response> method,
                                const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    PutBearer(token_, &context);
    Response response;
    DJINN_RETURN_IF_ERROR(
        FromGrpcStatus(((*stub_).*method)(&context, request, &response)));
    return response;
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

  const std::unique_ptr<Stub> stub_;
  const std::string token_;
};

}  // namespace

std::unique_ptr<AdminReader> MakeGrpcAdminReader(
    const std::shared_ptr<grpc::Channel>& channel, std::string token) {
  return std::make_unique<GrpcAdminReader>(channel, std::move(token));
}

}  // namespace djinn::console
