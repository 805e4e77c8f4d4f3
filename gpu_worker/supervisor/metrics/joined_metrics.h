// Joins the metrics of a worker's executors to one set.
//
// Numbers with the same name and labels are summed, or the largest one counts
// where a sum would mean nothing (how full the device is). The label `tenant`
// becomes the executor's tenant, whatever the executor wrote. Only families
// that executors declared before they served anybody (executor_families.h) are
// joined, with the help and the labels that were declared.
//
// Copyable; not thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_METRICS_JOINED_METRICS_H_
#define GPU_WORKER_SUPERVISOR_METRICS_JOINED_METRICS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/metrics/exposition.h"
#include "djinn/v1/supervision.pb.h"
#include "gpu_worker/supervisor/metrics/executor_families.h"

namespace djinn::worker {

class JoinedMetrics {
 public:
  // Returns the metrics as an executor sends them.
  static v1::ExecutorMetrics Encode(const Exposition& metrics);
  // Returns InvalidArgument for metrics that no executor would send: too many,
  // with names or texts that would break the lines of a scrape, or a family of
  // another type or with other bounds than in `families`.
  static absl::Status Check(const ExecutorFamilies& families,
                            const v1::ExecutorMetrics& metrics);

  // Adds what an executor reported last. `tenant` is the value of its label.
  void Add(const ExecutorFamilies& families, const v1::ExecutorMetrics& metrics,
           const std::string& tenant) {
    AddAll(families, metrics, tenant, /*past=*/false);
  }
  // Adds what remains of an executor that has ended: all but its gauges, and no
  // new series once the tenant has added 1,000. Logs the first one of each
  // tenant that is left out.
  void AddPast(const ExecutorFamilies& families,
               const v1::ExecutorMetrics& metrics, const std::string& tenant) {
    AddAll(families, metrics, tenant, /*past=*/true);
  }

  // Adds everything to a scrape, except for families that it has already.
  void AddTo(Exposition* out) const;

 private:
  struct Joined {
    std::string help;
    v1::MetricFamily::Type type = v1::MetricFamily::TYPE_UNSPECIFIED;
    std::map<Exposition::Labels, v1::Metric> series;
  };

  void AddAll(const ExecutorFamilies& families,
              const v1::ExecutorMetrics& metrics, const std::string& tenant,
              bool past);
  // Returns whether the tenant may add a series of an executor that has ended.
  // Logs the first one that it may not.
  bool TakeRoom(const std::string& tenant);

  // By the family's name.
  std::map<std::string, Joined> families_;
  // How many series each tenant has added that had ended.
  std::map<std::string, size_t> past_series_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_METRICS_JOINED_METRICS_H_
