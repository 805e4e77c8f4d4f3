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
  explicit GrpcWorkerConnector(const ChannelSecurity& security)
      : security_(security) {}

  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string& session_id) override {
    DJINN_ASSIGN_OR_RETURN(
        std::shared_ptr<grpc::Channel> control,
        MakeChannel(lease.worker_address(), {security_, /*connection=*/0}));
    DJINN_ASSIGN_OR_RETURN(
        std::shared_ptr<grpc::Channel> bulk,
        MakeChannel(lease.worker_address(), {security_, /*connection=*/1}));
    v1::BulkHello hello;
    hello.set_session_id(session_id);
    hello.set_lease_token(lease.token());
    return std::make_unique<GrpcWorkerStream>(
        std::move(control), std::move(bulk), std::move(hello));
  }

 private:
  const ChannelSecurity security_;
};

}  // namespace

std::unique_ptr<WorkerConnector> MakeGrpcWorkerConnector(
    const ChannelSecurity& security) {
  return std::make_unique<GrpcWorkerConnector>(security);
}

}  // namespace djinn
