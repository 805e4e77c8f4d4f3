// Reads times, and computes statistics of repeated measurements.
//
// Machines are noisy, so nothing here takes a mean of times. A measurement is
// repeated in rounds, and each round has a median. A report has the median of
// these medians, with the interval in which the true median lies.
#ifndef TESTS_BENCH_STATISTICS_H_
#define TESTS_BENCH_STATISTICS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace djinn::bench {

// Seconds since an arbitrary moment; only differences are meaningful.
struct Times {
  double wall = 0;
  double thread_cpu = 0;   // of the calling thread
  double process_cpu = 0;  // of all threads of this process

  // Returns the processor time of the process' other threads.
  double other_threads_cpu() const { return process_cpu - thread_cpu; }
};

Times operator-(const Times& a, const Times& b);

// Returns the times now. Readings to subtract must come from one thread.
Times Now();

// Returns the wall time only, which costs less.
double WallNow();

// Waits until threads that spin for a while after their calls, such as
// OpenMP's, sleep. They would slow down the next measurement.
void Settle();

// Returns the value below which `percent` of the samples lie, interpolated
// between the two nearest. `samples` has any order and must not be empty.
double Percentile(std::vector<double> samples, double percent);

double Median(std::vector<double> samples);

// Returns the mean of positive values, of which there is at least one.
double GeometricMean(absl::Span<const double> values);

struct Interval {
  double low = 0;
  double median = 0;
  double high = 0;
};

// Returns the median with its 95 % confidence interval, which is computed only
// from the ranks of the samples. With fewer than six samples, the interval
// contains all of them.
Interval MedianInterval(std::vector<double> samples);

// The samples of one measurement, in rounds.
class Series {
 public:
  // Begins a new round for the samples that follow.
  void StartRound() { rounds_.emplace_back(); }
  // Adds a sample to the current round. StartRound() must be called first.
  void Add(double sample) { rounds_.back().push_back(sample); }
  void AddRound(std::vector<double> samples) {
    rounds_.push_back(std::move(samples));
  }

  bool empty() const;
  size_t rounds() const { return rounds_.size(); }
  std::vector<double> All() const;
  // Returns one median per round that has samples, in order.
  std::vector<double> RoundMedians() const;

 private:
  std::vector<std::vector<double>> rounds_;
};

// Returns the median of the quotients of corresponding rounds: each round of
// `numerator` divided by the same round of `denominator`. Both series have the
// same number of rounds, which is at least one.
Interval PairedRatio(const Series& numerator, const Series& denominator);

// Returns the rounds of `numerator` divided by the median round of
// `denominator`, for series that were not measured at the same time.
Interval UnpairedRatio(const Series& numerator, const Series& denominator);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_STATISTICS_H_
