#include "common/net/call_metrics.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace djinn {
namespace {

using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::InterceptorBatchMethods;
using ::grpc::experimental::ServerRpcInfo;

constexpr char kOther[] = "other";
// Upper bounds in bytes.
constexpr uint64_t kSizeBounds[] = {
    0,       1 << 10, 2 << 10,  4 << 10,  16 << 10,  64 << 10,   256 << 10,
    1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1ull << 30, 4ull << 30};

// gRPC creates interceptors for registered methods only, so there are few
// names. Its own services count as one.
std::string MethodName(const char* path) {
  const absl::string_view method = absl::StripPrefix(path, "/");
  if (!absl::StartsWith(method, "djinn.")) return kOther;
  return std::string(method);
}

std::string StatusName(const grpc::Status& status) {
  // absl and gRPC number the codes alike.
  return absl::StatusCodeToString(
      static_cast<absl::StatusCode>(status.error_code()));
}

// Counts a unary call, or a call of gRPC's own services.
class CallCounter : public grpc::experimental::Interceptor {
 public:
  CallCounter(std::string method, CallMetrics* metrics)
      : method_(std::move(method)), metrics_(metrics), start_(absl::Now()) {
    // Services that are not Djinn's may have messages of any type.
    if (method_ != kOther) sizes_.emplace();
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (sizes_.has_value()) AddSizes(methods);
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      metrics_->Ended(method_, StatusName(methods->GetSendStatus()),
                      absl::Now() - start_, sizes_);
    }
    methods->Proceed();
  }

 private:
  void AddSizes(InterceptorBatchMethods* methods) {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_MESSAGE)) {
      const auto* const message =
          static_cast<const google::protobuf::MessageLite*>(
              methods->GetRecvMessage());
      if (message != nullptr) sizes_->received += message->ByteSizeLong();
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const grpc::ByteBuffer* const bytes = methods->GetSerializedSendMessage();
      if (bytes != nullptr) sizes_->sent += bytes->Length();
    }
  }

  const std::string method_;
  CallMetrics* const metrics_;
  const absl::Time start_;
  std::optional<CallSizes> sizes_;
};

class CallCounterFactory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounterFactory(CallMetrics* metrics) : metrics_(metrics) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* call) override {
    std::string method = MethodName(call->method());
    metrics_->Started(method);
    const bool counted =
        method == kOther || call->type() == ServerRpcInfo::Type::UNARY;
    return counted ? new CallCounter(std::move(method), metrics_) : nullptr;
  }

 private:
  CallMetrics* const metrics_;
};

}  // namespace

CallMetrics::CallMetrics()
    : started_("grpc_server_call_started_total", "Calls that began.",
               {"grpc_method"}) {}

void CallMetrics::SizeHistogram::Observe(uint64_t bytes) {
  static_assert(std::size(kSizeBounds) == kBounds);
  ++counts[std::lower_bound(std::begin(kSizeBounds), std::end(kSizeBounds),
                            bytes) -
           std::begin(kSizeBounds)];
  sum += bytes;
}

Exposition::Buckets CallMetrics::SizeHistogram::Read() const {
  Exposition::Buckets read;
  for (size_t i = 0; i < kBounds; ++i) {
    read.sample_count += counts[i];
    read.bounds.push_back(static_cast<double>(kSizeBounds[i]));
    read.cumulative_counts.push_back(read.sample_count);
  }
  read.sample_count += counts[kBounds];
  read.sample_sum = static_cast<double>(sum);
  return read;
}

void CallMetrics::Ended(const std::string& method, const std::string& status,
                        absl::Duration duration,
                        const std::optional<CallSizes>& sizes) {
  MutexLock lock(&mu_);
  Calls& calls = ended_[{method, status}];
  calls.durations.Observe(duration);
  if (!sizes.has_value()) return;
  calls.have_sizes = true;
  calls.sent.Observe(sizes->sent);
  calls.received.Observe(sizes->received);
}

void CallMetrics::Collect(Exposition* exposition) const {
  started_.Collect(exposition);
  MutexLock lock(&mu_);
  for (const auto& [call, ended] : ended_) {
    exposition->Histogram(
        "grpc_server_call_duration_seconds",
        "Calls and streams, from start to status.", ended.durations,
        {{"grpc_method", call.first}, {"grpc_status", call.second}});
    if (!ended.have_sizes) continue;
    exposition->Histogram(
        "grpc_server_call_sent_total_compressed_message_size_bytes",
        "Bytes of the messages that a call sent. Calls that carry tensors are "
        "not counted.",
        ended.sent.Read(),
        {{"grpc_method", call.first}, {"grpc_status", call.second}});
    exposition->Histogram(
        "grpc_server_call_rcvd_total_compressed_message_size_bytes",
        "Bytes of the messages that a call received. Calls that carry tensors "
        "are not counted.",
        ended.received.Read(),
        {{"grpc_method", call.first}, {"grpc_status", call.second}});
  }
}

void CallMetrics::Declare(Exposition* exposition) {
  CallMetrics calls;
  calls.Ended("", "", absl::ZeroDuration(), CallSizes());
  calls.Collect(exposition);
}

CountedStream::CountedStream(CallMetrics* metrics, absl::string_view method)
    : metrics_(metrics), method_(method), start_(absl::Now()) {}

const grpc::Status& CountedStream::End(const grpc::Status& status) {
  if (metrics_ != nullptr) {
    metrics_->Ended(method_, StatusName(status), absl::Now() - start_, sizes_);
  }
  return status;
}

const grpc::Status& CountedStream::EndWithoutSizes(const grpc::Status& status) {
  if (metrics_ != nullptr) {
    metrics_->Ended(method_, StatusName(status), absl::Now() - start_);
  }
  return status;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallCounter(CallMetrics* metrics) {
  return std::make_unique<CallCounterFactory>(metrics);
}

}  // namespace djinn
