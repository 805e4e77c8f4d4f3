// Lists the metrics that executors count and the supervisor adds up.
//
// An executor is the same program as its supervisor, so the supervisor knows
// which metrics an honest executor sends. A test of docs/reference compares the
// list with the code.
#ifndef GPU_WORKER_SUPERVISOR_METRICS_EXECUTOR_FAMILIES_H_
#define GPU_WORKER_SUPERVISOR_METRICS_EXECUTOR_FAMILIES_H_

#include <map>
#include <string>
#include <vector>

#include "djinn/v1/supervision.pb.h"

namespace djinn::worker {

struct ExecutorFamily {
  std::string help;
  v1::MetricFamily::Type type = v1::MetricFamily::TYPE_UNSPECIFIED;
  // The upper bounds of a histogram's buckets; empty for other types.
  std::vector<double> bounds;
};

// Returns the families by name.
const std::map<std::string, ExecutorFamily>& ExecutorFamilies();

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_METRICS_EXECUTOR_FAMILIES_H_
