// Bounds how long a test waits for an event in another thread or process.
#ifndef COMMON_BASE_PATIENCE_H_
#define COMMON_BASE_PATIENCE_H_

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <thread>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace djinn {

// Bounds a wait in a test:
//
//   for (Patience patience; !came_;) patience.Wait(&changed_, &mu_);
//
// When the time is up, prints where the program waited, and ends the program: a
// thread that hangs cannot be joined. The time limit of the test itself would
// print nothing.
class Patience {
 public:
  // Shorter than the time limit that Bazel gives a small test.
  static constexpr absl::Duration kLong = absl::Seconds(30);

  explicit Patience(
      absl::Duration time = kLong,
      std::source_location where = std::source_location::current())
      : time_(time), where_(where) {}

  // Waits until `changed` is signalled or the time is up. In the latter case,
  // the next call ends the program.
  void Wait(CondVar* changed, Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    changed->WaitWithTimeout(mu, Left());
  }
  void Yield() const {
    Left();
    std::this_thread::yield();
  }
  // Returns the remaining time.
  absl::Duration Left() const {
    const absl::Duration left =
        time_ - absl::FromChrono(std::chrono::steady_clock::now() - begin_);
    if (left <= absl::ZeroDuration()) {
      std::fprintf(stderr, "%s:%u: waited in vain in %s\n", where_.file_name(),
                   static_cast<unsigned>(where_.line()),
                   where_.function_name());
      std::abort();
    }
    return left;
  }

 private:
  const absl::Duration time_;
  const std::source_location where_;
  const std::chrono::steady_clock::time_point begin_ =
      std::chrono::steady_clock::now();
};

}  // namespace djinn

#endif  // COMMON_BASE_PATIENCE_H_
