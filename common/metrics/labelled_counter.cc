#include "common/metrics/labelled_counter.h"

namespace djinn {

LabelledCounter::LabelledCounter(std::string name, std::string help,
                                 std::vector<std::string> labels)
    : name_(std::move(name)),
      help_(std::move(help)),
      labels_(std::move(labels)) {}

void LabelledCounter::Add(const std::vector<std::string>& values,
                          uint64_t count) {
  MutexLock lock(&mu_);
  counts_[values] += count;
}

void LabelledCounter::Collect(Exposition* exposition) const {
  Exposition::Values counters = exposition->Counters(name_, help_, labels_);
  MutexLock lock(&mu_);
  for (const auto& [values, count] : counts_) {
    counters.Add(static_cast<double>(count), values);
  }
}

}  // namespace djinn
