#include "common/net/channelz.h"

#include <utility>

#include "absl/base/call_once.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "common/base/error.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "grpcpp/ext/channelz_service_plugin.h"

namespace djinn {
namespace {

using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::InterceptorBatchMethods;
using ::grpc::experimental::ServerRpcInfo;

// The service is gRPC's own and always makes an answer. The guard replaces the
// answer before it is sent.
class Guard : public grpc::experimental::Interceptor {
 public:
  Guard(const std::string* admin_token, ServerRpcInfo* call)
      : admin_token_(*admin_token), call_(call) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      allowed_ = Allowed();
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_MESSAGE) &&
        !allowed_) {
      methods->ModifySendMessage(nullptr);
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS) &&
        !allowed_) {
      methods->ModifySendStatus(
          ToGrpcStatus(MakeError(absl::StatusCode::kUnauthenticated,
                                 "TOKEN_UNKNOWN", "not the admin token")));
    }
    methods->Proceed();
  }

 private:
  bool Allowed() const {
    const absl::StatusOr<std::string> token =
        ExtractBearer(*call_->server_context());
    return !admin_token_.empty() && token.ok() &&
           TokensEqual(*token, admin_token_);
  }

  const std::string& admin_token_;
  ServerRpcInfo* const call_;
  bool allowed_ = false;
};

class GuardFactory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit GuardFactory(std::string admin_token)
      : admin_token_(std::move(admin_token)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* call) override {
    if (!absl::StartsWith(call->method(), "/grpc.channelz.")) return nullptr;
    return new Guard(&admin_token_, call);
  }

 private:
  const std::string admin_token_;
};

}  // namespace

void EnableChannelz() {
  static absl::once_flag once;
  absl::call_once(once,
                  [] { grpc::channelz::experimental::InitChannelzService(); });
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeChannelzGuard(std::string admin_token) {
  return std::make_unique<GuardFactory>(std::move(admin_token));
}

}  // namespace djinn
