#include "common/metrics/exposition.h"

#include <cstdint>

#include "prometheus/text_serializer.h"

namespace djinn {

prometheus::ClientMetric* Exposition::Find(const std::string& name,
                                           absl::string_view help,
                                           prometheus::MetricType type,
                                           const Labels& labels) {
  Family& entry = families_[name];
  prometheus::MetricFamily& family = entry.family;
  if (family.metric.empty()) {
    family.name = name;
    family.help = std::string(help);
    family.type = type;
  }
  const auto [position, added] =
      entry.positions.emplace(labels, family.metric.size());
  if (added) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    for (const auto& [key, value] : labels)
      metric.label.push_back({key, value});
  }
  return &family.metric[position->second];
}

void Exposition::Gauge(const std::string& name, absl::string_view help,
                       double value, const Labels& labels) {
  Find(name, help, prometheus::MetricType::Gauge, labels)->gauge.value += value;
}

void Exposition::Counter(const std::string& name, absl::string_view help,
                         double value, const Labels& labels) {
  Find(name, help, prometheus::MetricType::Counter, labels)->counter.value +=
      value;
}

void Exposition::Histogram(const std::string& name, absl::string_view help,
                           const DurationHistogram& histogram,
                           const Labels& labels) {
  auto& out =
      Find(name, help, prometheus::MetricType::Histogram, labels)->histogram;
  out.bucket.resize(DurationHistogram::kBounds);
  uint64_t cumulative = 0;
  for (size_t i = 0; i < DurationHistogram::kBounds; ++i) {
    cumulative += histogram.count(i);
    out.bucket[i].cumulative_count += cumulative;
    out.bucket[i].upper_bound = absl::ToDoubleSeconds(histogram.bound(i));
  }
  out.sample_count += cumulative + histogram.count(DurationHistogram::kBounds);
  out.sample_sum += absl::ToDoubleSeconds(histogram.sum());
}

void Exposition::Histogram(const std::string& name, absl::string_view help,
                           const CountHistogram& histogram,
                           const Labels& labels) {
  auto& out =
      Find(name, help, prometheus::MetricType::Histogram, labels)->histogram;
  out.bucket.resize(CountHistogram::kBounds);
  uint64_t cumulative = 0;
  for (size_t i = 0; i < CountHistogram::kBounds; ++i) {
    cumulative += histogram.count(i);
    out.bucket[i].cumulative_count += cumulative;
    out.bucket[i].upper_bound = static_cast<double>(CountHistogram::Bound(i));
  }
  out.sample_count += cumulative + histogram.count(CountHistogram::kBounds);
  out.sample_sum += static_cast<double>(histogram.sum());
}

void Exposition::Histogram(const std::string& name, absl::string_view help,
                           const Buckets& histogram, const Labels& labels) {
  auto& out =
      Find(name, help, prometheus::MetricType::Histogram, labels)->histogram;
  out.bucket.resize(histogram.bounds.size());
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    out.bucket[i].cumulative_count += histogram.cumulative_counts[i];
    out.bucket[i].upper_bound = histogram.bounds[i];
  }
  out.sample_count += histogram.sample_count;
  out.sample_sum += histogram.sample_sum;
}

void Exposition::Visit(
    const std::function<void(const prometheus::MetricFamily&)>& visit) const {
  for (const auto& [name, entry] : families_) visit(entry.family);
}

std::string Exposition::Text() const {
  std::vector<prometheus::MetricFamily> families;
  families.reserve(families_.size());
  for (const auto& [name, entry] : families_) families.push_back(entry.family);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace djinn
