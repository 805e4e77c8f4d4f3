// Shows tests what an operator sees of a cluster, so that they can wait until
// the cluster changes.
#ifndef TESTS_E2E_ADMIN_CLIENT_H_
#define TESTS_E2E_ADMIN_CLIENT_H_

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "djinn/v1/admin.pb.h"
#include "grpcpp/client_context.h"

namespace djinn {

inline std::string ReadFirstWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Returns empty answers while the coordinator is away.
class AdminClient {
 public:
  AdminClient(const std::string& address, const std::string& token_file)
      : stub_(v1::Admin::NewStub(MakeChannel(address).value())),
        token_(ReadFirstWord(token_file)) {}

  v1::WorkerInfo Worker(const std::string& id) const {
    grpc::ClientContext context;
    Prepare(&context);
    v1::GetWorkerRequest request;
    request.set_worker_id(id);
    v1::WorkerInfo worker;
    (void)stub_->GetWorker(&context, request, &worker);
    return worker;
  }
  v1::TenantInfo Tenant(const std::string& name) const {
    grpc::ClientContext context;
    Prepare(&context);
    v1::GetTenantRequest request;
    request.set_tenant(name);
    v1::TenantInfo tenant;
    (void)stub_->GetTenant(&context, request, &tenant);
    return tenant;
  }
  // Returns the first hundred graphs, with their nodes.
  std::vector<v1::GraphInfo> Graphs() const {
    grpc::ClientContext context;
    Prepare(&context);
    v1::ListGraphsResponse response;
    (void)stub_->ListGraphs(&context, v1::ListGraphsRequest(), &response);
    std::vector<v1::GraphInfo> graphs;
    for (const v1::GraphInfo& listed : response.graphs()) {
      grpc::ClientContext each;
      Prepare(&each);
      v1::GetGraphRequest request;
      request.set_fingerprint(listed.fingerprint());
      (void)stub_->GetGraph(&each, request, &graphs.emplace_back());
    }
    return graphs;
  }
  // Returns the session of the program with that name; empty when there is
  // none.
  v1::SessionInfo SessionOf(const std::string& program) const {
    grpc::ClientContext context;
    Prepare(&context);
    v1::ListSessionsResponse response;
    (void)stub_->ListSessions(&context, v1::ListSessionsRequest(), &response);
    for (const v1::SessionInfo& session : response.sessions()) {
      if (session.program() == program) return session;
    }
    return {};
  }

  // Returns false when the call was refused or the coordinator did not answer.
  template <typename Request, typename Response>
  bool Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                    const Request&, Response*),
            const Request& request, Response* response) const {
    grpc::ClientContext context;
    Prepare(&context);
    return ((*stub_).*method)(&context, request, response).ok();
  }

 private:
  void Prepare(grpc::ClientContext* context) const {
    PutBearer(token_, context);
    context->set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(5));
  }

  const std::unique_ptr<v1::Admin::Stub> stub_;
  const std::string token_;
};

}  // namespace djinn

#endif  // TESTS_E2E_ADMIN_CLIENT_H_
