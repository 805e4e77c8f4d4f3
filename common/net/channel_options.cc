#include "common/net/channel_options.h"

#include "common/net/server_address.h"
#include "common/status_macros.h"
#include "grpc/grpc.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace djinn {
namespace {

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Keeps gRPC initialised for the life of the process. Its shutdown, when the
// last object goes, can stall for ten seconds on a thread of its own that has
// lost its turn to poll; exits and closing sessions must not wait for that.
void KeepGrpcInitialised() {
  static const bool kept = (grpc_init(), true);
  (void)kept;
}

}  // namespace

grpc::ChannelArguments MakeChannelArguments(const ChannelOptions& options) {
  KeepGrpcInitialised();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxControlMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   Milliseconds(kKeepaliveInterval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   Milliseconds(kKeepaliveTimeout));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   Milliseconds(kMinReconnectBackoff));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Milliseconds(kMinReconnectBackoff));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   Milliseconds(kMaxReconnectBackoff));
  // gRPC's own retries keep what was sent until the peer answers: tensors' bytes
  // would stay referenced. Streams are taken up again a level above.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // The environment's web proxy is not meant for peers on this host.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt("djinn.connection", options.connection);
  return arguments;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options) {
  DJINN_RETURN_IF_ERROR(CheckAddress(address, options.insecure));
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   MakeChannelArguments(options));
}

void ApplyServerOptions(grpc::ServerBuilder* builder) {
  KeepGrpcInitialised();
  builder->SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  builder->SetMaxSendMessageSize(kMaxControlMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              kMaxConcurrentStreams);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              Milliseconds(kKeepaliveInterval));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(kKeepaliveTimeout));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(kMinPingInterval));
  // A second server on the same port is a mistake, not a load balancer.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace djinn
