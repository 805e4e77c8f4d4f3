#include "common/net/tracing/grpc_span_transport.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "grpcpp/client_context.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace djinn {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;

class GrpcSpanTransport final : public SpanTransport {
 public:
  explicit GrpcSpanTransport(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(otlp::TraceService::NewStub(channel)) {}

  absl::Status Export(const otlp::ExportTraceServiceRequest& request,
                      absl::Duration timeout, int64_t* rejected) override {
    grpc::ClientContext context;
    context.set_deadline(
        std::chrono::system_clock::now() +
        absl::ToChronoMilliseconds(std::max(timeout, absl::ZeroDuration())));
    {
      MutexLock lock(&mu_);
      if (cancelled_) return absl::CancelledError("the process stops");
      context_ = &context;
    }
    otlp::ExportTraceServiceResponse response;
    const grpc::Status status = stub_->Export(&context, request, &response);
    MutexLock lock(&mu_);
    context_ = nullptr;
    *rejected = response.partial_success().rejected_spans();
    return FromGrpcStatus(status);
  }

  void Cancel() override {
    MutexLock lock(&mu_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  const std::unique_ptr<otlp::TraceService::Stub> stub_;
  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The context of the call in progress, or null.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SpanTransport>> MakeGrpcSpanTransport(
    const std::string& endpoint, ChannelSecurity security) {
  ChannelOptions options;
  options.security = std::move(security);
  options.silence = kLongSilence;
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                         MakeChannel(endpoint, options));
  return std::make_unique<GrpcSpanTransport>(channel);
}

}  // namespace djinn
