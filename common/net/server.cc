#include "common/net/server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
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
#include "common/net/socket.h"
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
  ChannelzGuard(const TokenCheck* is_operator, UnprovenConnections* unproven,
                ServerRpcInfo* call)
      : is_operator_(*is_operator), unproven_(unproven), call_(call) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      allowed_ = Allowed();
      if (allowed_) NoteProven(*call_->server_context(), unproven_);
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
  UnprovenConnections* const unproven_;
  ServerRpcInfo* const call_;
  bool allowed_ = false;
};

class ChannelzGuards
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  ChannelzGuards(TokenCheck is_operator, UnprovenConnections* unproven)
      : is_operator_(std::move(is_operator)), unproven_(unproven) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* call) override {
    if (!absl::StartsWith(call->method(), "/grpc.channelz.")) return nullptr;
    return new ChannelzGuard(&is_operator_, unproven_, call);
  }

 private:
  const TokenCheck is_operator_;
  UnprovenConnections* const unproven_;
};

// Number of connections whose first bytes are awaited at once.
constexpr size_t kMaxSilentConnections = 1024;
// Size of HTTP/2's preface. A TLS client's first message is longer.
constexpr size_t kFirstBytes = 24;

ConnectionGate::Verdict JudgeFirstBytes(absl::string_view bytes) {
  return bytes.size() < kFirstBytes ? ConnectionGate::Verdict::kIncomplete
                                    : ConnectionGate::Verdict::kComplete;
}

// Passes a connection to gRPC, with the options that gRPC sets on those that it
// accepts itself.
void PassOn(Socket socket, UnprovenConnections* unproven,
            grpc::experimental::ExternalConnectionAcceptor* acceptor) {
  if (!unproven->Enter(socket)) return;
  const int yes = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  const auto timeout = static_cast<int>(
      absl::ToInt64Milliseconds(kLongSilence * (1 - kPingAfter)));
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout,
             sizeof(timeout));
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
      connection;
  connection.fd = socket.Release();
  acceptor->HandleNewConnection(&connection);
}

}  // namespace

Server::Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options) {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (options.tls_from_memory != nullptr) {
    credentials = options.tls_from_memory->MakeCredentials();
  } else {
    DJINN_ASSIGN_OR_RETURN(
        credentials, MakeServerCredentials(options.tls, options.insecure));
  }
  DJINN_RETURN_IF_ERROR(
      CheckAddress(options.address, options.insecure || options.tls.enabled() ||
                                        options.tls_from_memory != nullptr));
  EnableStandardServices();
  if (options.is_operator) EnableChannelz();
  auto server = absl::WrapUnique(new Server);
  server->unproven_ = options.unproven;
  if (server->unproven_ == nullptr) {
    server->own_unproven_ = std::make_unique<UnprovenConnections>();
    server->unproven_ = server->own_unproven_.get();
  }
  grpc::ServerBuilder builder;
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  // Always added, because another server of this process may have enabled
  // channelz.
  interceptors.push_back(
      std::make_unique<ChannelzGuards>(options.is_operator, server->unproven_));
  if (options.call_metrics != nullptr) {
    interceptors.push_back(MakeCallCounter(options.call_metrics));
  }
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  ApplyServerOptions(&builder);
  Listener listener;
  listener.address = options.address;
  if (options.listener >= 0) {
    Socket inherited(fcntl(options.listener, F_DUPFD_CLOEXEC, 0));
    if (inherited.fd() < 0 ||
        fcntl(inherited.fd(), F_SETFL,
              fcntl(inherited.fd(), F_GETFL) | O_NONBLOCK) != 0) {
      return MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                       absl::StrCat("the inherited socket ", options.listener,
                                    ": ", std::strerror(errno)),
                       {{"address", options.address}});
    }
    listener.sockets.push_back(std::move(inherited));
  } else if (absl::StartsWith(options.address, "unix:")) {
    builder.AddListeningPort(options.address, credentials);
  } else {
    DJINN_ASSIGN_OR_RETURN(listener, Listen(options.address));
  }
  if (!listener.sockets.empty()) {
    server->listeners_ = std::move(listener.sockets);
    server->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        credentials);
  }
  for (grpc::Service* service : options.services) {
    builder.RegisterService(service);
  }
  if (options.other_calls != nullptr) {
    builder.RegisterCallbackGenericService(options.other_calls);
  }
  server->address_ = listener.address;
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                     absl::StrCat("cannot listen on \"", options.address,
                                  "\": in use or not permitted"),
                     {{"address", options.address}});
  }
  for (const std::string& name : options.health_services) {
    server->server_->GetHealthCheckService()->SetServingStatus(name, true);
  }
  if (!options.serving) server->SetServing(false);
  if (server->acceptor_ != nullptr && options.listener < 0) server->Accept();
  return server;
}

Server::~Server() {
  if (server_ != nullptr) Shutdown(absl::ZeroDuration());
}

void Server::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(serving);
}

void Server::SetServing(const std::string& service, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(service, serving);
}

void Server::Accept() {
  ConnectionGate::Options gate;
  gate.max_connections = kMaxSilentConnections;
  gate.first_bytes_timeout = kConnectTimeout;
  gate.judge = JudgeFirstBytes;
  gate.take = [unproven = unproven_,
               acceptor = acceptor_.get()](Socket socket) {
    PassOn(std::move(socket), unproven, acceptor);
  };
  gate_ =
      std::make_unique<ConnectionGate>(std::move(listeners_), std::move(gate));
}

void Server::Shutdown(absl::Duration grace) {
  gate_ = nullptr;
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(std::chrono::system_clock::now() +
                    absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

}  // namespace djinn
