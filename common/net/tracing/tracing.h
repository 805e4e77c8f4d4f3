// Starts to export the spans of a server, as its configuration says.
#ifndef COMMON_NET_TRACING_TRACING_H_
#define COMMON_NET_TRACING_TRACING_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/metrics/exposition.h"
#include "common/net/tracing/tracing_config.h"
#include "common/trace/span_exporter.h"

namespace djinn {

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
