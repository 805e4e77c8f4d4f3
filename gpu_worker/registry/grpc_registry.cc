#include "gpu_worker/registry/grpc_registry.h"

#include <utility>

#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/tls_probe.h"
#include "common/status_macros.h"
#include "djinn/v1/worker_registry.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace djinn::worker {
namespace {

class GrpcRegistryStream : public RegistryStream {
 public:
  // `options` outlive the stream.
  GrpcRegistryStream(v1::WorkerRegistry::Stub* stub,
                     const GrpcRegistryOptions& options)
      : options_(options) {
    PutBearer(options.join_token, &context_);
    stream_ = stub->Synchronize(&context_);
  }
  // A stream that nobody finished must not be waited for.
  ~GrpcRegistryStream() override { context_.TryCancel(); }

  bool Write(const v1::WorkerState& state) override {
    return stream_->Write(state);
  }
  bool Read(v1::DesiredState* desired) override {
    const bool read = stream_->Read(desired);
    answered_ |= read;
    return read;
  }
  void Cancel() override { context_.TryCancel(); }
  absl::Status Finish() override {
    absl::Status status = FromGrpcStatus(stream_->Finish());
    return answered_
               ? status
               : ExplainTlsFailure(std::move(status), options_.coordinator,
                                   options_.security);
  }

 private:
  const GrpcRegistryOptions& options_;
  bool answered_ = false;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerState, v1::DesiredState>>
      stream_;
};

class GrpcRegistry : public RegistryConnector {
 public:
  GrpcRegistry(std::shared_ptr<grpc::Channel> channel,
               const GrpcRegistryOptions& options)
      : stub_(v1::WorkerRegistry::NewStub(channel)), options_(options) {}

  std::unique_ptr<RegistryStream> Open() override {
    return std::make_unique<GrpcRegistryStream>(stub_.get(), options_);
  }

 private:
  const std::unique_ptr<v1::WorkerRegistry::Stub> stub_;
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
