#include "gpu_worker/registry/grpc_registry.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/net/bearer.h"
#include "common/net/bounded_call.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/tls_probe.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::worker {
namespace {

constexpr char kMethod[] = "/djinn.v1.WorkerRegistry/Synchronize";

class GrpcRegistryStream : public RegistryStream {
 public:
  // `options` must outlive the stream.
  GrpcRegistryStream(std::shared_ptr<grpc::Channel> channel,
                     const GrpcRegistryOptions& options)
      : options_(options),
        call_(std::move(channel), kMethod,
              {BearerMetadata(options.join_token())}) {}

  bool Write(const v1::WorkerState& state) override {
    return call_.WriteMessage(state);
  }
  bool Read(v1::DesiredState* desired) override {
    const bool read = call_.ReadMessage(desired, &invalid_);
    answered_ |= read;
    return read;
  }
  void Cancel() override { call_.Cancel(); }
  absl::Status Finish() override {
    absl::Status status = FromGrpcStatus(call_.Finish());
    if (!invalid_.ok()) return invalid_;
    return answered_
               ? status
               : ExplainTlsFailure(std::move(status), options_.coordinator,
                                   options_.security);
  }

 private:
  const GrpcRegistryOptions& options_;
  bool answered_ = false;
  absl::Status invalid_;  // set when bytes arrived that are not a message
  BoundedCall call_;
};

class GrpcRegistry : public RegistryConnector {
 public:
  GrpcRegistry(std::shared_ptr<grpc::Channel> channel,
               const GrpcRegistryOptions& options)
      : channel_(std::move(channel)), options_(options) {}

  std::unique_ptr<RegistryStream> Open() override {
    return std::make_unique<GrpcRegistryStream>(channel_, options_);
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const GrpcRegistryOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RegistryConnector>> MakeGrpcRegistry(
    const GrpcRegistryOptions& options) {
  DJINN_ASSIGN_OR_RETURN(
      std::shared_ptr<grpc::Channel> channel,
      MakeChannel(options.coordinator, {options.security, /*connection=*/0}));
  return std::make_unique<GrpcRegistry>(std::move(channel), options);
}

}  // namespace djinn::worker
