// Turns a wait that does not end into a failure that names the waiting threads.
#ifndef TESTS_SCHEDULES_WATCHDOG_H_
#define TESTS_SCHEDULES_WATCHDOG_H_

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace djinn::schedules {

// While it lives, says that the calling thread does `what`.
class WhoWaits {
 public:
  explicit WhoWaits(std::string what);
  ~WhoWaits();

 private:
  const int key_;
};

// Aborts the process if Progress() is not called for `patience`. First prints
// which schedule is being played and which threads wait.
class Watchdog {
 public:
  explicit Watchdog(absl::Duration patience);
  ~Watchdog();

  // Notes that `text` is being played from now on.
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
