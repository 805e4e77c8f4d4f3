// Wall and processor time of a stretch of code.
#ifndef TESTS_BENCH_STOPWATCH_H_
#define TESTS_BENCH_STOPWATCH_H_

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

}  // namespace djinn::bench

#endif  // TESTS_BENCH_STOPWATCH_H_
