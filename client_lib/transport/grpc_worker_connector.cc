#include "client_lib/transport/grpc_worker_connector.h"

#include <string>
#include <utility>

#include "client_lib/transport/grpc_worker_stream.h"
#include "common/net/channel_options.h"
#include "common/status_macros.h"

namespace djinn {
namespace {

class GrpcWorkerConnector : public WorkerConnector {
 public:
  explicit GrpcWorkerConnector(bool insecure) : insecure_(insecure) {}

  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string& session_id) override {
    DJINN_ASSIGN_OR_RETURN(
        std::shared_ptr<grpc::Channel> control,
        MakeChannel(lease.worker_address(), {insecure_, /*connection=*/0}));
    DJINN_ASSIGN_OR_RETURN(
        std::shared_ptr<grpc::Channel> bulk,
        MakeChannel(lease.worker_address(), {insecure_, /*connection=*/1}));
    v1::BulkHello hello;
    hello.set_session_id(session_id);
    hello.set_lease_token(lease.token());
    return std::make_unique<GrpcWorkerStream>(
        std::move(control), std::move(bulk), std::move(hello));
  }

 private:
  const bool insecure_;
};

}  // namespace

std::unique_ptr<WorkerConnector> MakeGrpcWorkerConnector(bool insecure) {
  return std::make_unique<GrpcWorkerConnector>(insecure);
}

}  // namespace djinn
