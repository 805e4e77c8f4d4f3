// Times, and numbers about repeated measurements.
//
// Machines are noisy, so nothing here takes a mean of times. A measurement is
// repeated in rounds, and each round has a median; a report has the median of
// those, with the interval in which the true one lies.
#ifndef TESTS_BENCH_STATISTICS_H_
#define TESTS_BENCH_STATISTICS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace djinn::bench {

// Seconds since some moment; only differences mean something.
struct Times {
  double wall = 0;
  double thread_cpu = 0;   // Of the calling thread.
  double process_cpu = 0;  // Of all threads of this process.

  // Spent by the process outside the calling thread.
  double other_threads_cpu() const { return process_cpu - thread_cpu; }
};

Times operator-(const Times& a, const Times& b);

// The times now; readings to subtract must come from one thread.
Times Now();

// Only the wall, which costs less.
double WallNow();

// Lets threads that spin for a while after work (OpenMP's) go to sleep, so that
// they do not slow down what is measured next.
void Settle();

// The value below which `percent` of the samples lie, interpolated between the
// two nearest. `samples` must not be empty, in any order.
double Percentile(std::vector<double> samples, double percent);

double Median(std::vector<double> samples);

// Of positive values; at least one.
double GeometricMean(absl::Span<const double> values);

struct Interval {
  double low = 0;
  double median = 0;
  double high = 0;
};

// The median with its 95 % confidence interval, from the ranks of the samples
// alone; of fewer than six samples, all of them lie in the interval.
Interval MedianInterval(std::vector<double> samples);

// The samples of one measurement, in rounds.
class Series {
 public:
  // The samples that follow belong to a new round.
  void StartRound() { rounds_.emplace_back(); }
  // StartRound() comes first.
  void Add(double sample) { rounds_.back().push_back(sample); }
  void AddRound(std::vector<double> samples) {
    rounds_.push_back(std::move(samples));
  }

  bool empty() const;
  size_t rounds() const { return rounds_.size(); }
  std::vector<double> All() const;
  // One per round that has samples, in order.
  std::vector<double> RoundMedians() const;

 private:
  std::vector<std::vector<double>> rounds_;
};

// Median of the rounds' quotients, each round of `numerator` against the same
// round of `denominator`. Both have as many rounds, at least one.
Interval PairedRatio(const Series& numerator, const Series& denominator);

// Rounds of `numerator` against the median round of `denominator`, for series
// that were not measured together.
Interval UnpairedRatio(const Series& numerator, const Series& denominator);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_STATISTICS_H_
