// Collects the answer to one scrape: metrics with their values at that moment,
// in Prometheus' text format.
//
// The owners of numbers add them to each scrape. Nothing is registered, so a
// number lives where it is counted and costs nothing between scrapes. Values
// added under the same name and labels are summed.
//
// Not thread-safe.
#ifndef COMMON_METRICS_EXPOSITION_H_
#define COMMON_METRICS_EXPOSITION_H_

#include <cstdint>
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

  // The values of one name, which is known although there may be none.
  class Values;
  // Declares a family of values with these labels.
  Values Gauges(const std::string& name, absl::string_view help,
                std::vector<std::string> labels);
  Values Counters(const std::string& name, absl::string_view help,
                  std::vector<std::string> labels);

  // Adds a value that goes up and down.
  void Gauge(const std::string& name, absl::string_view help, double value,
             const Labels& labels = {});
  // Adds a value that only grows while the process lives. Its name ends in
  // _total.
  void Counter(const std::string& name, absl::string_view help, double value,
               const Labels& labels = {});
  void Histogram(const std::string& name, absl::string_view help,
                 const CountHistogram& histogram, const Labels& labels = {});
  // Adds a histogram in seconds.
  void Histogram(const std::string& name, absl::string_view help,
                 const DurationHistogram& histogram, const Labels& labels = {});

  // A histogram as a scrape shows it.
  struct Buckets {
    // Upper bounds in ascending order, and as many numbers of observations up
    // to them.
    std::vector<double> bounds;
    std::vector<uint64_t> cumulative_counts;
    uint64_t sample_count = 0;
    double sample_sum = 0;
  };
  // Adds such a histogram, whose bounds are those of any other one with this
  // name and these labels.
  void Histogram(const std::string& name, absl::string_view help,
                 const Buckets& histogram, const Labels& labels = {});

  // Returns whether a metric with this name was added.
  bool Has(const std::string& name) const;
  // Calls the function with each family and the names of its labels, ordered by
  // name. Families that were only declared have no metrics.
  void Visit(const std::function<void(const prometheus::MetricFamily&,
                                      const std::vector<std::string>& labels)>&
                 visit) const;
  // Returns the text, whose content type is "text/plain; version=0.0.4".
  std::string Text() const;

 private:
  struct Family {
    prometheus::MetricFamily family;
    std::vector<std::string> labels;
    std::map<Labels, size_t> positions;
  };
  Family* Declare(const std::string& name, absl::string_view help,
                  prometheus::MetricType type, std::vector<std::string> labels);
  static prometheus::ClientMetric* Find(Family* family, const Labels& labels);
  prometheus::ClientMetric* Find(const std::string& name,
                                 absl::string_view help,
                                 prometheus::MetricType type,
                                 const Labels& labels);

  // Ordered by name, so that scrapes have the same order.
  std::map<std::string, Family> families_;
};

// Must not outlive the exposition.
class Exposition::Values {
 public:
  // Adds a value. `labels` has the labels' values, in the labels' order.
  void Add(double value, const std::vector<std::string>& labels);

 private:
  friend class Exposition;
  explicit Values(Family* family) : family_(family) {}

  Family* const family_;
};

// Adds its owner's metrics. Called by any thread at any time.
using MetricsSource = std::function<void(Exposition*)>;

}  // namespace djinn

#endif  // COMMON_METRICS_EXPOSITION_H_
