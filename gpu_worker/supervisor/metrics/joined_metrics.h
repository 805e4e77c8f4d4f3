// Joins the metrics of a worker's executors to one set.
//
// Numbers with the same name and labels are summed. If a sum means nothing, as
// for the pressure of the device's memory, the largest number counts. The label
// `tenant` becomes the executor's tenant, whatever the executor wrote. Only
// families that executors of this program have (executor_families.h) are
// joined, with the help that the program gives them.
//
// Copyable; not thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_METRICS_JOINED_METRICS_H_
#define GPU_WORKER_SUPERVISOR_METRICS_JOINED_METRICS_H_

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
  // with names or texts that would break the lines of a scrape, or a family of
  // another type or with other bounds than in this program.
  static absl::Status Check(const v1::ExecutorMetrics& metrics);

  // Adds the last report of an executor. `tenant` is the value of its label.
  void Add(const v1::ExecutorMetrics& metrics, const std::string& tenant) {
    AddAll(metrics, tenant, /*past=*/false);
  }
  // Adds the last report of an executor that has ended, without gauges, and
  // without new series once the tenant has added 1,000. Logs each tenant's
  // first series that is left out.
  void AddPast(const v1::ExecutorMetrics& metrics, const std::string& tenant) {
    AddAll(metrics, tenant, /*past=*/true);
  }

  // Adds everything to a scrape, except for families that it has already.
  void AddTo(Exposition* out) const;

 private:
  using Series = std::map<Exposition::Labels, v1::Metric>;

  void AddAll(const v1::ExecutorMetrics& metrics, const std::string& tenant,
              bool past);
  // Returns whether the tenant may add a series of an executor that has ended.
  // Logs the first one that it may not.
  bool TakeRoom(const std::string& tenant);

  // By the family's name.
  std::map<std::string, Series> families_;
  // Number of series of ended executors that each tenant has added.
  std::map<std::string, size_t> past_series_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_METRICS_JOINED_METRICS_H_
