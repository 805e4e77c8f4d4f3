#include "common/net/tracing/tracing.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/net/tls/tls.h"
#include "common/net/tracing/grpc_span_transport.h"

namespace djinn {

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
    out->Counter("djinn_trace_spans_total", "Trace spans, by result.",
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
