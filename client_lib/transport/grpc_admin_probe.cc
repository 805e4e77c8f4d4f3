#include "client_lib/transport/grpc_admin_probe.h"

#include <chrono>
#include <memory>

#include "common/base/status_macros.h"
#include "common/net/bearer.h"
#include "common/net/coordinator_channels.h"
#include "common/net/grpc_status.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "djinn/v1/admin.pb.h"
#include "grpcpp/client_context.h"

namespace djinn {

absl::StatusOr<int> CountActiveWorkers(const std::string& coordinator_addresses,
                                       const std::string& admin_token,
                                       absl::Duration timeout) {
  DJINN_ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorChannels> channels,
                         CoordinatorChannels::Make(coordinator_addresses));
  v1::ListWorkersResponse response;
  for (;;) {
    const CoordinatorChannels::Target target = channels->current();
    grpc::ClientContext context;
    PutBearer(admin_token, &context);
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMilliseconds(timeout));
    const absl::Status status = FromGrpcStatus(
        v1::Admin::NewStub(target.channel)
            ->ListWorkers(&context, v1::ListWorkersRequest(), &response));
    if (status.ok()) break;
    if (!absl::IsUnavailable(status) ||
        !channels->NoteFailure(target, status)) {
      return status;
    }
  }
  int active = 0;
  for (const v1::WorkerInfo& worker : response.workers()) {
    if (worker.state() == v1::WorkerInfo::ACTIVE) ++active;
  }
  return active;
}

}  // namespace djinn
