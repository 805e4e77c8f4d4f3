// Turns a wait that does not end into a failure that says who waits.
#ifndef TESTS_SCHEDULES_WATCHDOG_H_
#define TESTS_SCHEDULES_WATCHDOG_H_

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace djinn::schedules {

// While it lives, the calling thread does `what`.
class WhoWaits {
 public:
  explicit WhoWaits(std::string what);
  ~WhoWaits();

 private:
  const int key_;
};

// Aborts the process, after printing what it plays and who waits, when
// Progress() is not called for `patience`.
class Watchdog {
 public:
  explicit Watchdog(absl::Duration patience);
  ~Watchdog();

  // From now on `text` is being played.
  void Progress(std::string text);

 private:
  void Run();

  const absl::Duration patience_;
  Mutex mu_;
  CondVar changed_;
  std::string text_ ABSL_GUARDED_BY(mu_);
  uint64_t progress_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_WATCHDOG_H_
