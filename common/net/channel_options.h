// Sets the connection options of every Djinn client and server. Both sides must
// agree, because a server that allows fewer pings than its clients send closes
// their connections.
#ifndef COMMON_NET_CHANNEL_OPTIONS_H_
#define COMMON_NET_CHANNEL_OPTIONS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/tls/tls.h"
#include "grpcpp/channel.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

namespace djinn {

// Size of the largest message on any stream, in either direction. Tensors
// travel in chunks.
inline constexpr int kMaxControlMessageBytes = 64 << 20;
// Size of the HTTP/2 headers and trailers of one call. Statuses are cut to fit.
inline constexpr int kMaxMetadataBytes = 64 << 10;
// Bytes that a peer may send on a stream before they are acknowledged. It is a
// few chunks of a tensor, so that the first chunks need not wait for a window
// to grow.
inline constexpr int kStreamWindowBytes = 4 << 20;
// Size of the largest HTTP/2 frame. A chunk of a tensor is a few frames, not
// dozens.
inline constexpr int kMaxFrameBytes = 256 << 10;
// Number of calls open at once on one connection.
inline constexpr int kMaxConcurrentStreams = 256;

// Both sides ping every connection. A peer that does not answer is considered
// gone after about this silence, which ends every write that it did not
// receive. Clients notice a silent server soon on the connections on which they
// wait for it. Servers, and clients on connections for bulk bytes, have time.
inline constexpr absl::Duration kDefaultSilence = absl::Seconds(5);
inline constexpr absl::Duration kLongSilence = absl::Seconds(20);
// gRPC's clients ping once a second at most.
inline constexpr absl::Duration kMinSilence = absl::Seconds(2);
// A ping is sent after this part of the silence, and its answer has the rest:
// three seconds by default, because a busy machine may be late.
inline constexpr double kPingAfter = 0.4;
// Servers accept pings at this interval or above, which is less than what the
// shortest silence needs.
inline constexpr absl::Duration kMinPingInterval = absl::Milliseconds(500);

// Time limit of an attempt to connect, TLS handshake included.
inline constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
// Servers close a connection that has not become an HTTP/2 connection by then.
inline constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);
static_assert(kConnectTimeout < kHandshakeTimeout);
// Servers close a connection without calls after this time. A channel makes
// another one for its next call.
inline constexpr absl::Duration kMaxConnectionIdle = absl::Minutes(10);
// Limits of the wait between attempts to connect.
inline constexpr absl::Duration kMinReconnectBackoff = absl::Milliseconds(100);
inline constexpr absl::Duration kMaxReconnectBackoff = absl::Seconds(5);

struct ChannelOptions {
  ChannelSecurity security;
  // Channels with different numbers never share a connection, so that bulk
  // bytes do not delay control messages.
  int connection = 0;
  // See kDefaultSilence; at least kMinSilence.
  absl::Duration silence = kDefaultSilence;
};

grpc::ChannelArguments MakeChannelArguments(const ChannelOptions& options);

// Makes a channel without connecting it. `address` is "host:port" or
// "unix:PATH". Returns CheckAddress()'s errors.
//
// The last reference to a channel must not be dropped in a gRPC callback,
// because that deadlocks.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options = {});

// Applies the same settings to a server.
void ApplyServerOptions(grpc::ServerBuilder* builder);

}  // namespace djinn

#endif  // COMMON_NET_CHANNEL_OPTIONS_H_
