// What one scrape answers: metrics with their values at that moment, in
// Prometheus' text format.
//
// Whoever has numbers adds them; nothing is registered, so that a number lives
// where it is counted and costs nothing between scrapes. Values added under the
// same name and labels are summed.
//
// Not thread-safe.
#ifndef COMMON_METRICS_EXPOSITION_H_
#define COMMON_METRICS_EXPOSITION_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/metrics/count_histogram.h"
#include "common/metrics/duration_histogram.h"
#include "prometheus/metric_family.h"

namespace djinn {

class Exposition {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // A value that goes up and down.
  void Gauge(const std::string& name, absl::string_view help, double value,
             const Labels& labels = {});
  // One that only grows while the process lives; the name ends in _total.
  void Counter(const std::string& name, absl::string_view help, double value,
               const Labels& labels = {});
  void Histogram(const std::string& name, absl::string_view help,
                 const CountHistogram& histogram, const Labels& labels = {});
  // In seconds.
  void Histogram(const std::string& name, absl::string_view help,
                 const DurationHistogram& histogram, const Labels& labels = {});

  // The content type "text/plain; version=0.0.4".
  std::string Text() const;

 private:
  struct Family {
    prometheus::MetricFamily family;
    std::map<Labels, size_t> positions;
  };
  prometheus::ClientMetric* Find(const std::string& name,
                                 absl::string_view help,
                                 prometheus::MetricType type,
                                 const Labels& labels);

  // By name, so that scrapes are alike.
  std::map<std::string, Family> families_;
};

// Adds what somebody knows. Called by any thread, at any time.
using MetricsSource = std::function<void(Exposition*)>;

}  // namespace djinn

#endif  // COMMON_METRICS_EXPOSITION_H_
