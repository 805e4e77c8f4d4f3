// What Prometheus' client libraries say of every process, and which build of
// ours it is.
#ifndef COMMON_METRICS_PROCESS_METRICS_H_
#define COMMON_METRICS_PROCESS_METRICS_H_

#include <string>

#include "common/metrics/exposition.h"

namespace djinn {

// `role`: "coordinator" or "worker".
MetricsSource ProcessMetrics(const std::string& role);

}  // namespace djinn

#endif  // COMMON_METRICS_PROCESS_METRICS_H_
