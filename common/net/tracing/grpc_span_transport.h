// Sends spans to a collector over OTLP/gRPC.
#ifndef COMMON_NET_TRACING_GRPC_SPAN_TRANSPORT_H_
#define COMMON_NET_TRACING_GRPC_SPAN_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/tls/tls.h"
#include "common/trace/span_exporter.h"

namespace djinn {

// Makes the transport to "host:port" or "unix:PATH". Does not connect yet.
// Returns MakeChannel()'s errors.
absl::StatusOr<std::unique_ptr<SpanTransport>> MakeGrpcSpanTransport(
    const std::string& endpoint, ChannelSecurity security);

}  // namespace djinn

#endif  // COMMON_NET_TRACING_GRPC_SPAN_TRANSPORT_H_
