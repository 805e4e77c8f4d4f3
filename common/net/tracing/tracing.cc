#include "common/net/tracing/tracing.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/net/tls.h"
#include "common/net/tls_config.h"
#include "common/net/tracing/grpc_span_transport.h"

namespace djinn {

TracingConfig ReadTracing(ConfigMap* root) {
  TracingConfig config;
  if (!root->Has("tracing")) return config;
  ConfigMap map = root->Map("tracing");
  config.endpoint = map.RequiredString("endpoint");
  config.sample_ratio = map.Number("sample_ratio", config.sample_ratio, 0, 1);
  config.insecure = map.Bool("insecure", false);
  config.tls = ReadChannelTls(&map, "tls", config.insecure);
  if (!config.endpoint.empty()) {
    CheckConfigAddress(&map, "endpoint", config.endpoint,
                       config.insecure || config.tls.enabled());
  }
  return config;
}

std::vector<std::string> TracingDifferences(const TracingConfig& running,
                                            const TracingConfig& read) {
  std::vector<std::string> keys;
  const auto compare = [&](const char* key, const auto& before,
                           const auto& after) {
    if (before != after) keys.emplace_back(key);
  };
  compare("tracing.endpoint", running.endpoint, read.endpoint);
  compare("tracing.sample_ratio", running.sample_ratio, read.sample_ratio);
  compare("tracing.insecure", running.insecure, read.insecure);
  compare("tracing.tls.ca_file", running.tls.ca_file, read.tls.ca_file);
  compare("tracing.tls.certificate_file", running.tls.certificate_file,
          read.tls.certificate_file);
  compare("tracing.tls.private_key_file", running.tls.private_key_file,
          read.tls.private_key_file);
  compare("tracing.tls.server_name", running.tls.server_name,
          read.tls.server_name);
  return keys;
}

absl::StatusOr<std::unique_ptr<SpanExporter>> StartTracing(
    const TracingConfig& config, const std::string& service_name,
    const std::string& instance_id, Clock* clock) {
  if (config.endpoint.empty()) return nullptr;
  DJINN_ASSIGN_OR_RETURN(ChannelSecurity security,
                         ChannelSecurity::Make(config.tls, config.insecure));
  DJINN_ASSIGN_OR_RETURN(
      std::unique_ptr<SpanTransport> transport,
      MakeGrpcSpanTransport(config.endpoint, std::move(security)));
  SpanExporterOptions options;
  options.service_name = service_name;
  options.instance_id = instance_id;
  options.sample_ratio = config.sample_ratio;
  return std::make_unique<SpanExporter>(std::move(options),
                                        std::move(transport), clock);
}

void CollectSpans(const SpanExporter* exporter, Exposition* out) {
  if (exporter == nullptr) return;
  const SpanExporter::Counts counts = exporter->counts();
  const auto add = [&](const char* result, uint64_t count) {
    out->Counter("djinn_trace_spans_total",
                 "Spans of traces, by what became of them.",
                 static_cast<double>(count), {{"result", result}});
  };
  add("exported", counts.exported);
  add("dropped", counts.dropped);
  add("refused", counts.refused);
  out->Counter("djinn_trace_export_failures_total",
               "Calls of the traces' collector that failed.",
               static_cast<double>(counts.failures));
}

}  // namespace djinn
