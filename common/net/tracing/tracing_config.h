// Reads from a server's configuration where the spans of traces go. Knows no
// gRPC.
#ifndef COMMON_NET_TRACING_TRACING_CONFIG_H_
#define COMMON_NET_TRACING_TRACING_CONFIG_H_

#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "common/net/tls/tls_files.h"

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

}  // namespace djinn

#endif  // COMMON_NET_TRACING_TRACING_CONFIG_H_
