#include "gpu_worker/supervisor/metrics/executor_families.h"

namespace djinn::worker {

ExecutorFamilies FamiliesOf(const v1::ExecutorMetrics& declared) {
  ExecutorFamilies families;
  for (const v1::MetricFamily& family : declared.families()) {
    ExecutorFamily& known = families[family.name()];
    known.help = family.help();
    known.type = family.type();
    known.labels.assign(family.labels().begin(), family.labels().end());
    if (family.metrics().empty()) continue;
    const v1::Metric& first = family.metrics(0);
    known.bounds.assign(first.bounds().begin(), first.bounds().end());
  }
  return families;
}

}  // namespace djinn::worker
