#include "common/net/channel_options.h"

#include "common/base/status_macros.h"
#include "common/net/server_address.h"
#include "grpc/grpc.h"
#include "grpcpp/create_channel.h"

namespace djinn {
namespace {

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Keeps gRPC initialised for the life of the process. gRPC shuts down when its
// last object is destroyed, and this can stall for ten seconds on one of its
// own threads. Exits and closing sessions must not wait for that.
void KeepGrpcInitialised() {
  // The environment can switch on gRPC's traces, which print calls' metadata
  // with the tokens.
  static const bool kept =
      (grpc_init(), grpc_tracer_set_enabled("all", 0), true);
  (void)kept;
}

}  // namespace

grpc::ChannelArguments MakeChannelArguments(const ChannelOptions& options) {
  KeepGrpcInitialised();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxControlMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   Milliseconds(options.silence * kPingAfter));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   Milliseconds(options.silence * (1 - kPingAfter)));
  // Pings are sent without calls, too: a write stays under way after its call
  // was cancelled, and only the end of the connection releases the threads that
  // wait for it.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   Milliseconds(kMinReconnectBackoff));
  // Despite its name, the argument bounds an attempt, not the wait before the
  // next.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Milliseconds(kConnectTimeout));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   Milliseconds(kMaxReconnectBackoff));
  // The environment's web proxy is not meant for peers on this host.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // No call is retried. But with retries enabled, gRPC would keep up to 256 KiB
  // of a call's messages until the server answers, and code that waits for the
  // release of a message's memory, such as an upload, would wait without a
  // limit.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt("djinn.connection", options.connection);
  const std::string& server_name = options.security.tls().server_name;
  if (!server_name.empty()) arguments.SetSslTargetNameOverride(server_name);
  return arguments;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options) {
  const ChannelSecurity& security = options.security;
  DJINN_RETURN_IF_ERROR(CheckAddress(address, security.allows_other_hosts()));
  return grpc::CreateCustomChannel(address, security.credentials(),
                                   MakeChannelArguments(options));
}

void ApplyServerOptions(grpc::ServerBuilder* builder) {
  KeepGrpcInitialised();
  builder->SetMaxReceiveMessageSize(kMaxControlMessageBytes);
  builder->SetMaxSendMessageSize(kMaxControlMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kStreamWindowBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              kMaxConcurrentStreams);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              Milliseconds(kLongSilence * kPingAfter));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(kLongSilence * (1 - kPingAfter)));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(kMinPingInterval));
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              Milliseconds(kHandshakeTimeout));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              Milliseconds(kMaxConnectionIdle));
  // A second server on the same port is a mistake, not a load balancer.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace djinn
