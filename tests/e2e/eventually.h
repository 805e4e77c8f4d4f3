// Waits for an event in another thread or process.
#ifndef TESTS_E2E_EVENTUALLY_H_
#define TESTS_E2E_EVENTUALLY_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace djinn {

// Returns false when the condition did not become true in time.
template <typename Condition>
bool Eventually(Condition condition,
                absl::Duration timeout = absl::Seconds(30)) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace djinn

#endif  // TESTS_E2E_EVENTUALLY_H_
