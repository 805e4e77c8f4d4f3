// Counts rare events with labels, such as refusals and recoveries. It locks, so
// it is not for the path of every message.
//
// Thread-safe. The labels' values must come from small sets.
#ifndef COMMON_METRICS_LABELLED_COUNTER_H_
#define COMMON_METRICS_LABELLED_COUNTER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/metrics/exposition.h"

namespace djinn {

class LabelledCounter {
 public:
  LabelledCounter(std::string name, std::string help,
                  std::vector<std::string> labels);

  // Adds to the counter with these label values, in the order of the labels.
  void Add(const std::vector<std::string>& values, uint64_t count = 1);

  void Collect(Exposition* exposition) const;

 private:
  const std::string name_;
  const std::string help_;
  const std::vector<std::string> labels_;
  mutable Mutex mu_;
  std::map<std::vector<std::string>, uint64_t> counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // COMMON_METRICS_LABELLED_COUNTER_H_
