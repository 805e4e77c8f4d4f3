// Joins the metrics of a worker's executors to one set.
//
// Numbers with the same name and labels are summed, or the largest one counts
// where a sum would mean nothing (how full the device is). The label `tenant`
// becomes the executor's tenant, whatever the executor wrote.
//
// A value; not thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_JOINED_METRICS_H_
#define GPU_WORKER_SUPERVISOR_JOINED_METRICS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/metrics/exposition.h"
#include "djinn/v1/supervision.pb.h"

namespace djinn::worker {

class JoinedMetrics {
 public:
  // Returns the metrics as an executor sends them.
  static v1::ExecutorMetrics Encode(const Exposition& metrics);
  // Returns InvalidArgument for metrics that no executor would send: too many,
  // or with names or texts that would break the lines of a scrape.
  static absl::Status Check(const v1::ExecutorMetrics& metrics);

  // Adds what an executor reported last. `tenant` is the value of its label.
  void Add(const v1::ExecutorMetrics& metrics, const std::string& tenant) {
    AddAll(metrics, tenant, /*past=*/false);
  }
  // Adds what remains of an executor that has ended: all but its gauges, and no
  // new series once there are 20,000. Logs the first one that is left out.
  void AddPast(const v1::ExecutorMetrics& metrics, const std::string& tenant) {
    AddAll(metrics, tenant, /*past=*/true);
  }

  // Adds everything to a scrape, except for families that it has already.
  void AddTo(Exposition* out) const;

 private:
  struct Family {
    std::string help;
    v1::MetricFamily::Type type = v1::MetricFamily::TYPE_UNSPECIFIED;
    std::map<Exposition::Labels, v1::Metric> metrics;
  };

  void AddAll(const v1::ExecutorMetrics& metrics, const std::string& tenant,
              bool past);
  // Logs once that series are left out.
  void NoteFull();

  // By name.
  std::map<std::string, Family> families_;
  // Families without a series count, too.
  size_t past_series_ = 0;
  bool full_ = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_JOINED_METRICS_H_
