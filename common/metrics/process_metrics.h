// Exports the process metrics of Prometheus' client libraries, and the build's
// version.
#ifndef COMMON_METRICS_PROCESS_METRICS_H_
#define COMMON_METRICS_PROCESS_METRICS_H_

#include <string>

#include "common/metrics/exposition.h"

namespace djinn {

// Returns the source. `role` is "coordinator" or "worker".
MetricsSource ProcessMetrics(const std::string& role);

}  // namespace djinn

#endif  // COMMON_METRICS_PROCESS_METRICS_H_
