#include "common/net/server.h"

#include <chrono>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "common/net/channelz.h"
#include "common/net/server_address.h"
#include "common/net/tls.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server_builder.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options) {
  DJINN_ASSIGN_OR_RETURN(const auto credentials,
                         MakeServerCredentials(options.tls, options.insecure));
  DJINN_RETURN_IF_ERROR(
      CheckAddress(options.address, options.insecure || options.tls.enabled()));
  EnableStandardServices();
  if (!options.admin_token.empty()) EnableChannelz();
  grpc::ServerBuilder builder;
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  // Always added, because another server of this process may have enabled
  // channelz.
  interceptors.push_back(MakeChannelzGuard(options.admin_token));
  if (options.call_metrics != nullptr) {
    interceptors.push_back(MakeCallCounter(options.call_metrics));
  }
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  ApplyServerOptions(&builder);
  int port = 0;
  builder.AddListeningPort(options.address, credentials, &port);
  for (grpc::Service* service : options.services) {
    builder.RegisterService(service);
  }
  auto server = absl::WrapUnique(new Server);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || port == 0) {
    return MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                     absl::StrCat("cannot listen on \"", options.address,
                                  "\": in use or not permitted"),
                     {{"address", options.address}});
  }
  for (const std::string& name : options.health_services) {
    server->server_->GetHealthCheckService()->SetServingStatus(name, true);
  }
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

void Server::Shutdown(absl::Duration grace) {
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(std::chrono::system_clock::now() +
                    absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

}  // namespace djinn
