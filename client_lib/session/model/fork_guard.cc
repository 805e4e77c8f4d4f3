#include "client_lib/session/model/fork_guard.h"

#include <pthread.h>

#include "common/base/error.h"

namespace djinn {

namespace fork_guard_internal {
std::atomic<bool> forked{false};
}

void ArmForkGuard() {
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { fork_guard_internal::forked.store(true); });
  (void)registered;
}

absl::Status AfterForkError() {
  return MakeError(absl::StatusCode::kFailedPrecondition, "AFTER_FORK",
                   "remote devices cannot be used in a process forked from one "
                   "that had opened a session; open it after the fork, or "
                   "start the process afresh");
}

}  // namespace djinn
