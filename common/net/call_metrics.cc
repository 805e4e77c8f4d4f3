#include "common/net/call_metrics.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace djinn {
namespace {

using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::InterceptorBatchMethods;
using ::grpc::experimental::ServerRpcInfo;

// gRPC creates interceptors for registered methods only, so there are few
// names. Its own services count as one.
std::string MethodName(const char* path) {
  const absl::string_view method = absl::StripPrefix(path, "/");
  if (!absl::StartsWith(method, "djinn.")) return "other";
  return std::string(method);
}

class CallCounter : public grpc::experimental::Interceptor {
 public:
  CallCounter(std::string method, CallMetrics* metrics)
      : method_(std::move(method)), metrics_(metrics), start_(absl::Now()) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      // absl and gRPC number the codes alike.
      const auto code =
          static_cast<absl::StatusCode>(methods->GetSendStatus().error_code());
      metrics_->Ended(method_, absl::StatusCodeToString(code),
                      absl::Now() - start_);
    }
    methods->Proceed();
  }

 private:
  const std::string method_;
  CallMetrics* const metrics_;
  const absl::Time start_;
};

class CallCounterFactory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounterFactory(CallMetrics* metrics) : metrics_(metrics) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* call) override {
    std::string method = MethodName(call->method());
    metrics_->Started(method);
    if (call->type() != ServerRpcInfo::Type::UNARY) return nullptr;
    return new CallCounter(std::move(method), metrics_);
  }

 private:
  CallMetrics* const metrics_;
};

}  // namespace

CallMetrics::CallMetrics()
    : started_("grpc_server_call_started_total", "Calls that began.",
               {"grpc_method"}) {}

void CallMetrics::Ended(const std::string& method, const std::string& status,
                        absl::Duration duration) {
  MutexLock lock(&mu_);
  durations_[{method, status}].Observe(duration);
}

void CallMetrics::Collect(Exposition* exposition) const {
  started_.Collect(exposition);
  MutexLock lock(&mu_);
  for (const auto& [call, histogram] : durations_) {
    exposition->Histogram(
        "grpc_server_call_duration_seconds",
        "Calls that are no streams, from start to status.", histogram,
        {{"grpc_method", call.first}, {"grpc_status", call.second}});
  }
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallCounter(CallMetrics* metrics) {
  return std::make_unique<CallCounterFactory>(metrics);
}

}  // namespace djinn
