#include "common/net/server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/server_address.h"
#include "grpcpp/ext/channelz_service_plugin.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/server_interceptor.h"

namespace djinn {
namespace {

// Both functions register process-wide plug-ins and must precede the first
// builder.
void EnableStandardServices() {
  static absl::once_flag once;
  absl::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// Adds channelz to every server that this process builds from now on.
void EnableChannelz() {
  static absl::once_flag once;
  absl::call_once(once,
                  [] { grpc::channelz::experimental::InitChannelzService(); });
}

using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::InterceptorBatchMethods;
using ::grpc::experimental::ServerRpcInfo;
using TokenCheck = std::function<bool(absl::string_view)>;

// Admits calls of channelz, gRPC's data on the process' channels, servers and
// sockets, only with an operator's token: the answers contain the addresses of
// other clients. The service is gRPC's own and always makes an answer; the
// guard replaces the answer before it is sent.
class ChannelzGuard : public grpc::experimental::Interceptor {
 public:
  ChannelzGuard(const TokenCheck* is_operator, ServerRpcInfo* call)
      : is_operator_(*is_operator), call_(call) {}

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
    return is_operator_ && token.ok() && is_operator_(*token);
  }

  const TokenCheck& is_operator_;
  ServerRpcInfo* const call_;
  bool allowed_ = false;
};

class ChannelzGuards
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit ChannelzGuards(TokenCheck is_operator)
      : is_operator_(std::move(is_operator)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* call) override {
    if (!absl::StartsWith(call->method(), "/grpc.channelz.")) return nullptr;
    return new ChannelzGuard(&is_operator_, call);
  }

 private:
  const TokenCheck is_operator_;
};

// How long the acceptor pauses when descriptors have run out.
constexpr int kPauseMilliseconds = 100;

}  // namespace

// Accepts connections in a thread of its own and hands them to gRPC.
class Server::Acceptor {
 public:
  using GrpcAcceptor = grpc::experimental::ExternalConnectionAcceptor;

  Acceptor(int listener, int stop, std::unique_ptr<GrpcAcceptor> to)
      : listener_(listener), stop_(stop), to_(std::move(to)) {}
  ~Acceptor() {
    Stop();
    close(stop_);
  }

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }
  void Stop() {
    const uint64_t one = 1;
    // An event of the first call is enough.
    (void)!write(stop_, &one, sizeof(one));
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    // Another thread may take a connection first, and then accept4() must not
    // wait for the next one.
    fcntl(listener_, F_SETFL, fcntl(listener_, F_GETFL) | O_NONBLOCK);
    for (;;) {
      pollfd watched[] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
      poll(watched, 2, -1);
      if (watched[1].revents != 0) return;
      if (watched[0].revents == 0) continue;
      const int connection =
          accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (connection < 0) {
        if (errno != EAGAIN) poll(&watched[1], 1, kPauseMilliseconds);
        continue;
      }
      const int on = 1;
      // Fails for Unix sockets, which do not delay.
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      GrpcAcceptor::NewConnectionParameters parameters;
      parameters.listener_fd = listener_;
      parameters.fd = connection;
      to_->HandleNewConnection(&parameters);
    }
  }

  const int listener_;
  const int stop_;
  const std::unique_ptr<GrpcAcceptor> to_;
  std::thread thread_;
};

Server::Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options) {
  DJINN_ASSIGN_OR_RETURN(const auto credentials,
                         MakeServerCredentials(options.tls, options.insecure,
                                               options.tls_refresh_seconds));
  DJINN_RETURN_IF_ERROR(
      CheckAddress(options.address, options.insecure || options.tls.enabled()));
  EnableStandardServices();
  if (options.is_operator) EnableChannelz();
  grpc::ServerBuilder builder;
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  // Always added, because another server of this process may have enabled
  // channelz.
  interceptors.push_back(std::make_unique<ChannelzGuards>(options.is_operator));
  if (options.call_metrics != nullptr) {
    interceptors.push_back(MakeCallCounter(options.call_metrics));
  }
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  ApplyServerOptions(&builder);
  int port = 0;
  auto server = absl::WrapUnique(new Server);
  if (options.listener < 0) {
    builder.AddListeningPort(options.address, credentials, &port);
  } else {
    const int stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop < 0) {
      return MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                       absl::StrCat("eventfd: ", std::strerror(errno)),
                       {{"address", options.address}});
    }
    server->acceptor_ = std::make_unique<Acceptor>(
        options.listener, stop,
        builder.experimental().AddExternalConnectionAcceptor(
            grpc::ServerBuilder::experimental_type::ExternalConnectionType::
                FROM_FD,
            credentials));
  }
  for (grpc::Service* service : options.services) {
    builder.RegisterService(service);
  }
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || (port == 0 && options.listener < 0)) {
    return MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                     absl::StrCat("cannot listen on \"", options.address,
                                  "\": in use or not permitted"),
                     {{"address", options.address}});
  }
  for (const std::string& name : options.health_services) {
    server->server_->GetHealthCheckService()->SetServingStatus(name, true);
  }
  if (!options.serving) server->SetServing(false);
  if (absl::StartsWith(options.address, "unix:")) {
    server->address_ = options.address;
  } else {
    const size_t colon = options.address.rfind(':');
    server->address_ =
        absl::StrCat(options.address.substr(0, colon), ":", port);
  }
  return server;
}

Server::~Server() {
  if (server_ != nullptr) Shutdown(absl::ZeroDuration());
}

void Server::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(serving);
}
void Server::AcceptFromListener() { acceptor_->Start(); }

void Server::Shutdown(absl::Duration grace) {
  if (acceptor_ != nullptr) acceptor_->Stop();
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(std::chrono::system_clock::now() +
                    absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

}  // namespace djinn
