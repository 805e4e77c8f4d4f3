// Reads from a server's configuration where its spans go, and starts to export
// them.
#ifndef COMMON_NET_TRACING_TRACING_H_
#define COMMON_NET_TRACING_TRACING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/config/config_reader.h"
#include "common/metrics/exposition.h"
#include "common/net/tls_files.h"
#include "common/trace/span_exporter.h"

namespace djinn {

struct TracingConfig {
  // Empty: nothing is exported.
  std::string endpoint;
  double sample_ratio = 1;
  ChannelTls tls;
  bool insecure = false;
};

// Reads the map under `tracing`:
//
//   tracing:                    # absent: no traces
//     endpoint: 127.0.0.1:4317  # a collector's OTLP/gRPC port, or unix:PATH
//     sample_ratio: 1           # share of the traces that clients sample
//     tls:                      # of the collector; absent: not encrypted
//       ca_file: collector-ca.crt
//       certificate_file: worker.crt  # if the collector demands one
//       private_key_file: worker.key
//       server_name: collector  # absent: the endpoint's host
//     insecure: false           # true allows other hosts without TLS
TracingConfig ReadTracing(ConfigMap* root);

// Returns the keys in which the two differ, such as "tracing.endpoint".
std::vector<std::string> TracingDifferences(const TracingConfig& running,
                                            const TracingConfig& read);

// Starts to export; returns null when no endpoint is configured. Returns the
// errors of ChannelSecurity::Make() and MakeChannel(). A collector that does
// not answer is no error. `clock` must outlive the result.
absl::StatusOr<std::unique_ptr<SpanExporter>> StartTracing(
    const TracingConfig& config, const std::string& service_name,
    const std::string& instance_id, Clock* clock);

// Adds what the exporter counts, which may be null.
void CollectSpans(const SpanExporter* exporter, Exposition* out);

}  // namespace djinn

#endif  // COMMON_NET_TRACING_TRACING_H_
