#include "gpu_worker/supervisor/metrics/joined_metrics.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log/log.h"

namespace djinn::worker {
namespace {

// An honest executor sends some 50 KiB.
constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr char kTenant[] = "tenant";
// Most series of one tenant's ended executors. An honest executor has a few
// hundred.
constexpr size_t kMaxPastSeries = 1'000;

// Gauges whose largest value counts.
bool IsLargest(const std::string& name) {
  static const auto* const kLargest = new std::set<std::string>{
      "djinn_worker_device_available_bytes", "djinn_worker_memory_pressure"};
  return kLargest->contains(name);
}

bool IsName(absl::string_view name) {
  return !name.empty() &&
         !absl::ascii_isdigit(static_cast<unsigned char>(name.front())) &&
         !absl::StartsWith(name, "__") &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
                  c == '_';
         });
}

// Calls are named as gRPC names them. The supervisor counts executors itself.
bool IsFamily(absl::string_view name) {
  return IsName(name) && !absl::StartsWith(name, "djinn_worker_executors") &&
         !absl::StartsWith(name, "djinn_worker_executor_deaths") &&
         (absl::StartsWith(name, "djinn_") ||
          absl::StartsWith(name, "grpc_server_call_"));
}

// Prometheus refuses a whole scrape that has a label twice, or one of its own.
bool HasGoodLabels(const v1::Metric& metric) {
  std::set<absl::string_view> seen;
  for (const v1::MetricLabel& label : metric.labels()) {
    if (!IsName(label.name()) || label.name() == "le" ||
        label.name() == "quantile" || !seen.insert(label.name()).second) {
      return false;
    }
  }
  return true;
}

// Returns whether the numbers can be added to those of other executors.
bool HasGoodNumbers(const v1::Metric& metric, v1::MetricFamily::Type type) {
  const bool counts = type != v1::MetricFamily::GAUGE;
  if (!std::isfinite(metric.value()) || (counts && metric.value() < 0) ||
      !std::isfinite(metric.sample_sum())) {
    return false;
  }
  // The last bound may be infinite.
  for (int i = 0; i < metric.bounds_size(); ++i) {
    if (std::isnan(metric.bounds(i)) ||
        (i > 0 && metric.bounds(i) <= metric.bounds(i - 1))) {
      return false;
    }
  }
  return true;
}

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("metrics of an executor: ", what));
}

v1::MetricFamily::Type TypeOf(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return v1::MetricFamily::COUNTER;
    case prometheus::MetricType::Gauge:
      return v1::MetricFamily::GAUGE;
    case prometheus::MetricType::Histogram:
      return v1::MetricFamily::HISTOGRAM;
    default:
      return v1::MetricFamily::TYPE_UNSPECIFIED;
  }
}

void EncodeMetric(const prometheus::ClientMetric& from,
                  v1::MetricFamily::Type type, v1::Metric* to) {
  for (const prometheus::ClientMetric::Label& label : from.label) {
    v1::MetricLabel* const added = to->add_labels();
    added->set_name(label.name);
    added->set_value(label.value);
  }
  if (type != v1::MetricFamily::HISTOGRAM) {
    to->set_value(type == v1::MetricFamily::GAUGE ? from.gauge.value
                                                  : from.counter.value);
    return;
  }
  for (const prometheus::ClientMetric::Bucket& bucket : from.histogram.bucket) {
    to->add_bounds(bucket.upper_bound);
    to->add_cumulative_counts(bucket.cumulative_count);
  }
  to->set_sample_count(from.histogram.sample_count);
  to->set_sample_sum(from.histogram.sample_sum);
}

bool HasLabels(const v1::Metric& metric,
               const std::vector<std::string>& names) {
  return std::equal(metric.labels().begin(), metric.labels().end(),
                    names.begin(), names.end(),
                    [](const v1::MetricLabel& label, const std::string& name) {
                      return label.name() == name;
                    });
}

Exposition::Labels LabelsOf(const v1::Metric& metric,
                            const std::string& tenant) {
  Exposition::Labels labels;
  for (const v1::MetricLabel& label : metric.labels()) {
    // An empty name means no tenant.
    const bool replaced = label.name() == kTenant && !label.value().empty();
    labels.emplace_back(label.name(), replaced ? tenant : label.value());
  }
  return labels;
}

// Adds a histogram, which has the bounds of its family.
void AddHistogram(const v1::Metric& added, v1::Metric* sum) {
  *sum->mutable_bounds() = added.bounds();
  sum->mutable_cumulative_counts()->Resize(added.cumulative_counts_size(), 0);
  for (int i = 0; i < added.cumulative_counts_size(); ++i) {
    sum->set_cumulative_counts(
        i, sum->cumulative_counts(i) + added.cumulative_counts(i));
  }
  sum->set_sample_count(sum->sample_count() + added.sample_count());
  sum->set_sample_sum(sum->sample_sum() + added.sample_sum());
}

}  // namespace

v1::ExecutorMetrics JoinedMetrics::Encode(const Exposition& metrics) {
  v1::ExecutorMetrics encoded;
  metrics.Visit([&](const prometheus::MetricFamily& family,
                    const std::vector<std::string>& labels) {
    v1::MetricFamily* const added = encoded.add_families();
    added->set_name(family.name);
    added->set_help(family.help);
    added->set_type(TypeOf(family.type));
    for (const std::string& label : labels) added->add_labels(label);
    for (const prometheus::ClientMetric& metric : family.metric) {
      EncodeMetric(metric, added->type(), added->add_metrics());
    }
  });
  return encoded;
}

absl::Status JoinedMetrics::Check(const ExecutorFamilies& families,
                                  const v1::ExecutorMetrics& metrics) {
  if (metrics.ByteSizeLong() > kMaxBytes) return Bad("too many");
  for (const v1::MetricFamily& family : metrics.families()) {
    if (!IsFamily(family.name())) return Bad("a name that is none");
    if (!v1::MetricFamily::Type_IsValid(family.type()) ||
        family.type() == v1::MetricFamily::TYPE_UNSPECIFIED) {
      return Bad("a family of no type");
    }
    if (std::any_of(family.help().begin(), family.help().end(), [](char c) {
          return absl::ascii_iscntrl(static_cast<unsigned char>(c));
        })) {
      return Bad("a help of several lines");
    }
    const auto known = families.find(family.name());
    if (known != families.end() && known->second.type != family.type()) {
      return Bad(absl::StrCat(family.name(), " of another type"));
    }
    for (const v1::Metric& metric : family.metrics()) {
      if (known != families.end() &&
          !std::equal(metric.bounds().begin(), metric.bounds().end(),
                      known->second.bounds.begin(),
                      known->second.bounds.end())) {
        return Bad(absl::StrCat(family.name(), " with other bounds"));
      }
      if (metric.bounds_size() != metric.cumulative_counts_size()) {
        return Bad("a histogram with more bounds than counts, or fewer");
      }
      if (!HasGoodLabels(metric)) {
        return Bad("a label that is none, or is there twice");
      }
      if (!HasGoodNumbers(metric, family.type())) {
        return Bad("a number that is none, or bounds that do not ascend");
      }
    }
  }
  return absl::OkStatus();
}

bool JoinedMetrics::TakeRoom(const std::string& tenant) {
  size_t& series = past_series_[tenant];
  if (series < kMaxPastSeries) {
    ++series;
    return true;
  }
  if (series == kMaxPastSeries) {
    ++series;
    log::Warning(
        "metrics of a tenant's executors that ended are no longer complete: "
        "too many series",
        {{"tenant", tenant}, {"series", kMaxPastSeries}});
  }
  return false;
}

void JoinedMetrics::AddAll(const ExecutorFamilies& families,
                           const v1::ExecutorMetrics& metrics,
                           const std::string& tenant, bool past) {
  for (const v1::MetricFamily& family : metrics.families()) {
    const bool gauge = family.type() == v1::MetricFamily::GAUGE;
    const auto known = families.find(family.name());
    if ((past && gauge) || known == families.end()) continue;
    Joined& joined = families_[family.name()];
    joined.help = known->second.help;
    joined.type = known->second.type;
    for (const v1::Metric& metric : family.metrics()) {
      if (!HasLabels(metric, known->second.labels)) continue;
      Exposition::Labels labels = LabelsOf(metric, tenant);
      if (past && !joined.series.contains(labels) && !TakeRoom(tenant)) {
        continue;
      }
      v1::Metric& sum = joined.series[std::move(labels)];
      if (family.type() == v1::MetricFamily::HISTOGRAM) {
        AddHistogram(metric, &sum);
      } else if (gauge && IsLargest(family.name())) {
        sum.set_value(std::max(sum.value(), metric.value()));
      } else {
        sum.set_value(sum.value() + metric.value());
      }
    }
  }
}

void JoinedMetrics::AddTo(Exposition* out) const {
  for (const auto& [name, family] : families_) {
    if (out->Has(name)) continue;
    for (const auto& [labels, metric] : family.series) {
      switch (family.type) {
        case v1::MetricFamily::COUNTER:
          out->Counter(name, family.help, metric.value(), labels);
          break;
        case v1::MetricFamily::GAUGE:
          out->Gauge(name, family.help, metric.value(), labels);
          break;
        default:
          out->Histogram(name, family.help,
                         Exposition::Buckets{
                             {metric.bounds().begin(), metric.bounds().end()},
                             {metric.cumulative_counts().begin(),
                              metric.cumulative_counts().end()},
                             metric.sample_count(),
                             metric.sample_sum()},
                         labels);
      }
    }
  }
}

}  // namespace djinn::worker
