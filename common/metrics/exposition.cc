#include "common/metrics/exposition.h"

#include <cstdint>
#include <utility>

#include "prometheus/text_serializer.h"

namespace djinn {

Exposition::Family* Exposition::Declare(const std::string& name,
                                        absl::string_view help,
                                        prometheus::MetricType type,
                                        std::vector<std::string> labels) {
  const auto [found, added] = families_.try_emplace(name);
  Family* const entry = &found->second;
  if (added) {
    entry->family.name = name;
    entry->family.help = std::string(help);
    entry->family.type = type;
    entry->labels = std::move(labels);
  }
  return entry;
}

prometheus::ClientMetric* Exposition::Find(Family* entry,
                                           const Labels& labels) {
  prometheus::MetricFamily& family = entry->family;
  const auto [position, added] =
      entry->positions.emplace(labels, family.metric.size());
  if (added) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    for (const auto& [key, value] : labels)
      metric.label.push_back({key, value});
  }
  return &family.metric[position->second];
}

prometheus::ClientMetric* Exposition::Find(const std::string& name,
                                           absl::string_view help,
                                           prometheus::MetricType type,
                                           const Labels& labels) {
  std::vector<std::string> names;
  names.reserve(labels.size());
  for (const auto& [key, value] : labels) names.push_back(key);
  return Find(Declare(name, help, type, std::move(names)), labels);
}

Exposition::Values Exposition::Gauges(const std::string& name,
                                      absl::string_view help,
                                      std::vector<std::string> labels) {
  return Values(
      Declare(name, help, prometheus::MetricType::Gauge, std::move(labels)));
}

Exposition::Values Exposition::Counters(const std::string& name,
                                        absl::string_view help,
                                        std::vector<std::string> labels) {
  return Values(
      Declare(name, help, prometheus::MetricType::Counter, std::move(labels)));
}

void Exposition::Values::Add(double value,
                             const std::vector<std::string>& labels) {
  Labels named;
  for (size_t i = 0; i < labels.size(); ++i) {
    named.emplace_back(family_->labels[i], labels[i]);
  }
  prometheus::ClientMetric* const metric = Find(family_, named);
  if (family_->family.type == prometheus::MetricType::Gauge) {
    metric->gauge.value += value;
  } else {
    metric->counter.value += value;
  }
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

bool Exposition::Has(const std::string& name) const {
  const auto found = families_.find(name);
  return found != families_.end() && !found->second.family.metric.empty();
}

void Exposition::Visit(
    const std::function<void(const prometheus::MetricFamily&,
                             const std::vector<std::string>& labels)>& visit)
    const {
  for (const auto& [name, entry] : families_) {
    visit(entry.family, entry.labels);
  }
}

std::string Exposition::Text() const {
  std::vector<prometheus::MetricFamily> families;
  families.reserve(families_.size());
  for (const auto& [name, entry] : families_) {
    if (!entry.family.metric.empty()) families.push_back(entry.family);
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace djinn
