#include "client_lib/transport/grpc_admin_probe.h"

#include <chrono>
#include <memory>

#include "common/base/status_macros.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "djinn/v1/admin.pb.h"
#include "grpcpp/client_context.h"

namespace djinn {

absl::StatusOr<int> CountActiveWorkers(const std::string& coordinator_address,
                                       const std::string& admin_token,
                                       absl::Duration timeout) {
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                         MakeChannel(coordinator_address));
  grpc::ClientContext context;
  PutBearer(admin_token, &context);
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(timeout));
  v1::ListWorkersResponse response;
  DJINN_RETURN_IF_ERROR(FromGrpcStatus(v1::Admin::NewStub(channel)->ListWorkers(
      &context, v1::ListWorkersRequest(), &response)));
  int active = 0;
  for (const v1::WorkerInfo& worker : response.workers()) {
    if (worker.state() == v1::WorkerInfo::ACTIVE) ++active;
  }
  return active;
}

}  // namespace djinn
