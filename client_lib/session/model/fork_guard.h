// Detects that this process is a forked child of a process that had opened a
// session. Such a child has neither session threads nor connections, and its
// locks may stay held for ever.
#ifndef CLIENT_LIB_SESSION_MODEL_FORK_GUARD_H_
#define CLIENT_LIB_SESSION_MODEL_FORK_GUARD_H_

#include <atomic>

#include "absl/status/status.h"

namespace djinn {

namespace fork_guard_internal {
extern std::atomic<bool> forked;
}

// Marks children forked from now on. The session calls it before it opens.
void ArmForkGuard();

inline bool IsForkedChild() {
  return fork_guard_internal::forked.load(std::memory_order_relaxed);
}

// Returns FailedPrecondition (AFTER_FORK).
absl::Status AfterForkError();

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MODEL_FORK_GUARD_H_
