#include "tests/bench/statistics.h"

#include <time.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace djinn::bench {
namespace {

double Read(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

Times operator-(const Times& a, const Times& b) {
  return {.wall = a.wall - b.wall,
          .thread_cpu = a.thread_cpu - b.thread_cpu,
          .process_cpu = a.process_cpu - b.process_cpu};
}

Times Now() {
  return {.wall = WallNow(),
          .thread_cpu = Read(CLOCK_THREAD_CPUTIME_ID),
          .process_cpu = Read(CLOCK_PROCESS_CPUTIME_ID)};
}

double WallNow() { return Read(CLOCK_MONOTONIC); }

void Settle() {
  // libgomp's threads spin for up to 300,000 pauses, some 20 ms.
  absl::SleepFor(absl::Milliseconds(30));
}

double Percentile(std::vector<double> samples, double percent) {
  assert(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const double place = percent / 100 * static_cast<double>(samples.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, samples.size() - 1);
  const double part = place - static_cast<double>(below);
  return samples[below] + part * (samples[above] - samples[below]);
}

double Median(std::vector<double> samples) {
  return Percentile(std::move(samples), 50);
}

double GeometricMean(absl::Span<const double> values) {
  assert(!values.empty());
  const double logs = std::accumulate(
      values.begin(), values.end(), 0.0,
      [](double sum, double value) { return sum + std::log(value); });
  return std::exp(logs / static_cast<double>(values.size()));
}

Interval MedianInterval(std::vector<double> samples) {
  assert(!samples.empty());
  std::sort(samples.begin(), samples.end());
  // The number of samples below the true median has a binomial distribution
  // with p = 1/2.
  const double count = static_cast<double>(samples.size());
  const double outside = (count - 1.96 * std::sqrt(count)) / 2;
  const size_t rank = outside > 0 ? static_cast<size_t>(outside) : 0;
  return {.low = samples[rank],
          .median = Median(samples),
          .high = samples[samples.size() - 1 - rank]};
}

bool Series::empty() const {
  return std::all_of(rounds_.begin(), rounds_.end(),
                     [](const auto& round) { return round.empty(); });
}

std::vector<double> Series::All() const {
  std::vector<double> all;
  for (const auto& round : rounds_) {
    all.insert(all.end(), round.begin(), round.end());
  }
  return all;
}

std::vector<double> Series::RoundMedians() const {
  std::vector<double> medians;
  for (const auto& round : rounds_) {
    if (!round.empty()) medians.push_back(Median(round));
  }
  return medians;
}

Interval PairedRatio(const Series& numerator, const Series& denominator) {
  std::vector<double> ratios = numerator.RoundMedians();
  const std::vector<double> divisors = denominator.RoundMedians();
  assert(ratios.size() == divisors.size());
  for (size_t i = 0; i < ratios.size(); ++i) ratios[i] /= divisors[i];
  return MedianInterval(std::move(ratios));
}

Interval UnpairedRatio(const Series& numerator, const Series& denominator) {
  std::vector<double> ratios = numerator.RoundMedians();
  const double divisor = Median(denominator.RoundMedians());
  for (double& ratio : ratios) ratio /= divisor;
  return MedianInterval(std::move(ratios));
}

}  // namespace djinn::bench
