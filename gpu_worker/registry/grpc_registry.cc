#include "gpu_worker/registry/grpc_registry.h"

#include <utility>

#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/status_macros.h"
#include "djinn/v1/worker_registry.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace djinn::worker {
namespace {

class GrpcRegistryStream : public RegistryStream {
 public:
  GrpcRegistryStream(v1::WorkerRegistry::Stub* stub,
                     const std::string& join_token) {
    PutBearer(join_token, &context_);
    stream_ = stub->Synchronize(&context_);
  }
  // A stream that nobody finished must not be waited for.
  ~GrpcRegistryStream() override { context_.TryCancel(); }

  bool Write(const v1::WorkerState& state) override {
    return stream_->Write(state);
  }
  bool Read(v1::DesiredState* desired) override {
    return stream_->Read(desired);
  }
  void Cancel() override { context_.TryCancel(); }
  absl::Status Finish() override { return FromGrpcStatus(stream_->Finish()); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerState, v1::DesiredState>>
      stream_;
};

class GrpcRegistry : public RegistryConnector {
 public:
  GrpcRegistry(std::shared_ptr<grpc::Channel> channel, std::string join_token)
      : stub_(v1::WorkerRegistry::NewStub(channel)),
        join_token_(std::move(join_token)) {}

  std::unique_ptr<RegistryStream> Open() override {
    return std::make_unique<GrpcRegistryStream>(stub_.get(), join_token_);
  }

 private:
  const std::unique_ptr<v1::WorkerRegistry::Stub> stub_;
  const std::string join_token_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RegistryConnector>> MakeGrpcRegistry(
    const GrpcRegistryOptions& options) {
  ChannelOptions channel_options;
  channel_options.insecure = options.insecure;
  DJINN_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                         MakeChannel(options.coordinator, channel_options));
  return std::make_unique<GrpcRegistry>(std::move(channel), options.join_token);
}

}  // namespace djinn::worker
