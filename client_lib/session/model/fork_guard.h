// Knows whether this process was forked from one that had opened a session:
// threads and connections are gone there, and locks may be held for ever.
#ifndef CLIENT_LIB_SESSION_MODEL_FORK_GUARD_H_
#define CLIENT_LIB_SESSION_MODEL_FORK_GUARD_H_

#include <atomic>

#include "absl/status/status.h"

namespace djinn {

namespace fork_guard_internal {
extern std::atomic<bool> forked;
}

// Called before a session opens: from now on children count as forked.
void ArmForkGuard();

inline bool IsForkedChild() {
  return fork_guard_internal::forked.load(std::memory_order_relaxed);
}

// FailedPrecondition (AFTER_FORK).
absl::Status AfterForkError();

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_FORK_GUARD_H_
