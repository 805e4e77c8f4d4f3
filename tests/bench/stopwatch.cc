#include "tests/bench/stopwatch.h"

#include <time.h>

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

}  // namespace djinn::bench
