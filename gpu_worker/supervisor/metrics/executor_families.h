// Knows the metrics that executors may report: those that an executor declared
// before it served anybody.
#ifndef GPU_WORKER_SUPERVISOR_METRICS_EXECUTOR_FAMILIES_H_
#define GPU_WORKER_SUPERVISOR_METRICS_EXECUTOR_FAMILIES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "djinn/v1/supervision.pb.h"

namespace djinn::worker {

struct ExecutorFamily {
  std::string help;
  v1::MetricFamily::Type type = v1::MetricFamily::TYPE_UNSPECIFIED;
  std::vector<std::string> labels;
  // The upper bounds of a histogram's buckets; empty for other types.
  std::vector<double> bounds;
};

// Families by name.
using ExecutorFamilies = std::map<std::string, ExecutorFamily>;
using SharedFamilies = std::shared_ptr<const ExecutorFamilies>;

// Returns the families of a declaration that JoinedMetrics::Check() accepted.
ExecutorFamilies FamiliesOf(const v1::ExecutorMetrics& declared);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_METRICS_EXECUTOR_FAMILIES_H_
