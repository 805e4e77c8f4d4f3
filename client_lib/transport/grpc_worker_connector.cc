#include "client_lib/transport/grpc_worker_connector.h"

#include <string>
#include <utility>
#include <vector>

#include "client_lib/transport/grpc_worker_stream.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/net/tls/tls_probe.h"

namespace djinn {
namespace {

class GrpcWorkerConnector : public WorkerConnector {
 public:
  GrpcWorkerConnector(const ChannelSecurity& security, int bulk_channels,
                      ChannelPool* channels, absl::Duration silence)
      : security_(security),
        bulk_channels_(bulk_channels),
        channels_(channels),
        silence_(silence) {}

  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease& lease, const std::string& session_id) override {
    DJINN_ASSIGN_OR_RETURN(
        std::shared_ptr<grpc::Channel> control,
        channels_->Take(lease.worker_address(),
                        {security_, /*connection=*/0, silence_}));
    std::vector<std::shared_ptr<grpc::Channel>> bulk;
    for (int i = 1; i <= bulk_channels_; ++i) {
      DJINN_ASSIGN_OR_RETURN(
          bulk.emplace_back(),
          channels_->Take(lease.worker_address(),
                          {security_, /*connection=*/i, kLongSilence}));
    }
    v1::BulkHello hello;
    hello.set_session_id(session_id);
    hello.set_lease_token(lease.token());
    GrpcWorkerStream::Options options;
    options.encrypted = security_.encrypted();
    options.explain = [security = security_,
                       address = lease.worker_address()](absl::Status status) {
      return ExplainTlsFailure(std::move(status), address, security);
    };
    // The stream keeps the channels alive for longer than it may call this.
    std::vector<const grpc::Channel*> all = {control.get()};
    for (const auto& channel : bulk) all.push_back(channel.get());
    options.broke = [channels = channels_, all] {
      for (const grpc::Channel* channel : all) channels->Distrust(*channel);
    };
    return std::make_unique<GrpcWorkerStream>(std::move(control),
                                              std::move(bulk), std::move(hello),
                                              std::move(options));
  }

 private:
  const ChannelSecurity security_;
  const int bulk_channels_;
  ChannelPool* const channels_;
  const absl::Duration silence_;
};

}  // namespace

ChannelPool* WorkerChannels() {
  static auto* const channels = new ChannelPool({}, Clock::Real());
  return channels;
}

std::unique_ptr<WorkerConnector> MakeGrpcWorkerConnector(
    const ChannelSecurity& security, int bulk_channels, ChannelPool* channels,
    absl::Duration silence) {
  return std::make_unique<GrpcWorkerConnector>(security, bulk_channels,
                                               channels, silence);
}

}  // namespace djinn
