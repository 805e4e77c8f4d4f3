#include "gpu_worker/registry/grpc_registry.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/bearer.h"
#include "common/net/bounded_call.h"
#include "common/net/coordinator_channels.h"
#include "common/net/grpc_status.h"
#include "common/net/tls/tls_probe.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::worker {
namespace {

constexpr char kMethod[] = "/djinn.v1.WorkerRegistry/Synchronize";

class GrpcRegistryStream : public RegistryStream {
 public:
  // All must outlive the stream.
  GrpcRegistryStream(CoordinatorChannels* channels,
                     const GrpcRegistryOptions& options)
      : options_(options),
        channels_(channels),
        target_(channels->current()),
        call_(target_.channel, kMethod,
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
    absl::Status ended = FromGrpcStatus(call_.Finish());
    if (ended.ok()) {
      ended = absl::UnavailableError("the coordinator ended the stream");
    }
    next_at_once_ = channels_->NoteFailure(target_, ended);
    if (!invalid_.ok()) return invalid_;
    // A coordinator that follows has answered, too.
    return answered_ || !ErrorReason(ended).empty()
               ? ended
               : ExplainTlsFailure(ended, target_.address, options_.security);
  }
  bool NextAtOnce() const override { return next_at_once_; }

 private:
  const GrpcRegistryOptions& options_;
  CoordinatorChannels* const channels_;
  const CoordinatorChannels::Target target_;
  bool answered_ = false;
  bool next_at_once_ = false;
  absl::Status invalid_;  // set when bytes arrived that are not a message
  BoundedCall call_;
};

class GrpcRegistry : public RegistryConnector {
 public:
  GrpcRegistry(std::unique_ptr<CoordinatorChannels> channels,
               const GrpcRegistryOptions& options)
      : channels_(std::move(channels)), options_(options) {}

  std::unique_ptr<RegistryStream> Open() override {
    return std::make_unique<GrpcRegistryStream>(channels_.get(), options_);
  }

 private:
  const std::unique_ptr<CoordinatorChannels> channels_;
  const GrpcRegistryOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RegistryConnector>> MakeGrpcRegistry(
    const GrpcRegistryOptions& options) {
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<CoordinatorChannels> channels,
      CoordinatorChannels::Make(options.coordinator, options.security));
  return std::make_unique<GrpcRegistry>(std::move(channels), options);
}

}  // namespace djinn::worker
