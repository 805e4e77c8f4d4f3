#include <memory>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "coordinator/cluster/departure.h"
#include "coordinator/rpc/services.h"
#include "djinn/v1/worker_departure.grpc.pb.h"

namespace djinn::coordinator {
namespace {

class Service : public v1::WorkerDeparture::CallbackService {
 public:
  Service(const Credentials* credentials, ClusterState* cluster,
          UnprovenConnections* unproven)
      : credentials_(*credentials), cluster_(cluster), unproven_(unproven) {}

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveProgress* progress) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(Serve(*context, *request, progress)));
    return reactor;
  }

 private:
  absl::Status Serve(const grpc::CallbackServerContext& context,
                     const v1::LeaveRequest& request,
                     v1::LeaveProgress* progress) {
    const absl::StatusOr<std::string> token = ExtractBearer(context);
    if (!token.ok()) return token.status();
    if (!credentials_.IsJoinToken(*token)) {
      return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                       "not the join token");
    }
    NoteProven(context, unproven_);
    absl::StatusOr<v1::LeaveProgress> answer =
        departure::Leave(*cluster_, request);
    if (!answer.ok()) return answer.status();
    *progress = *std::move(answer);
    return absl::OkStatus();
  }

  const Credentials& credentials_;
  ClusterState* const cluster_;
  UnprovenConnections* const unproven_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkerDepartureService(
    const Credentials* credentials, ClusterState* cluster,
    UnprovenConnections* unproven) {
  return std::make_unique<Service>(credentials, cluster, unproven);
}

}  // namespace djinn::coordinator
