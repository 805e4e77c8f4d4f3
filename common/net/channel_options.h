// The connection settings of every Djinn client and server. Both sides take
// them from here, because they must agree: a server that allows fewer pings
// than its clients send closes their connections.
#ifndef COMMON_NET_CHANNEL_OPTIONS_H_
#define COMMON_NET_CHANNEL_OPTIONS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/tls.h"
#include "grpcpp/channel.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

namespace djinn {

// Largest message on any stream, either way. Tensors travel in chunks.
inline constexpr int kMaxControlMessageBytes = 64 << 20;
// HTTP/2 headers and trailers of one call; statuses are cut to fit.
inline constexpr int kMaxMetadataBytes = 64 << 10;
// What a peer may send on a stream before it hears that it was taken: a few
// chunks of a tensor, so that the first need not wait for a window to grow.
inline constexpr int kStreamWindowBytes = 4 << 20;
// HTTP/2 frames up to this; a chunk of a tensor is a few of them, not dozens.
inline constexpr int kMaxFrameBytes = 256 << 10;
// Calls open at once on one connection.
inline constexpr int kMaxConcurrentStreams = 256;

// Both sides ping every connection; a peer that does not answer is gone after
// at most interval + timeout, and with it every write that it did not take.
inline constexpr absl::Duration kKeepaliveInterval = absl::Seconds(10);
inline constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(10);
// Servers accept pings up to this often.
inline constexpr absl::Duration kMinPingInterval = absl::Seconds(5);
static_assert(kMinPingInterval < kKeepaliveInterval);

// How long an attempt to connect may take, TLS handshake included.
inline constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
// Servers close a connection that has not become an HTTP/2 one by then.
inline constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);
static_assert(kConnectTimeout < kHandshakeTimeout);
// Servers close a connection on which there was no call for so long; a channel
// makes another for the next one.
inline constexpr absl::Duration kMaxConnectionIdle = absl::Minutes(10);
// Waits between attempts to connect.
inline constexpr absl::Duration kMinReconnectBackoff = absl::Milliseconds(100);
inline constexpr absl::Duration kMaxReconnectBackoff = absl::Seconds(5);

struct ChannelOptions {
  ChannelSecurity security;
  // Channels with different numbers never share a connection, so that bulk
  // bytes do not delay control messages.
  int connection = 0;
};

grpc::ChannelArguments MakeChannelArguments(const ChannelOptions& options);

// Makes a channel without connecting it. `address` is "host:port" or
// "unix:PATH". CheckAddress()'s errors.
//
// The last reference to a channel must not be dropped in a gRPC callback: that
// deadlocks.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options = {});

// The same settings for a server.
void ApplyServerOptions(grpc::ServerBuilder* builder);

}  // namespace djinn

#endif  // COMMON_NET_CHANNEL_OPTIONS_H_
