#include "common/leave_processor.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"

namespace djinn {

void LeaveProcessor() {
  cpu_set_t allowed;
  const int processor = sched_getcpu();
  if (processor < 0 || processor >= CPU_SETSIZE ||
      sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return;
  }
  cpu_set_t others = allowed;
  CPU_CLR(processor, &others);
  if (CPU_COUNT(&others) == 0 ||
      sched_setaffinity(0, sizeof(others), &others) != 0) {
    return;
  }
  if (sched_setaffinity(0, sizeof(allowed), &allowed) != 0) {
    log::Warning("a thread may not use one of its processors any more",
                 {{"processor", absl::StrCat(processor)},
                  {"error", std::strerror(errno)}});
  }
}

bool LeavePace::Note(bool crowded, absl::Duration now) {
  if (!crowded) {
    if (moved_) pause_ = min_pause_;
    moved_ = false;
    return false;
  }
  if (now < not_before_) return false;
  if (moved_) pause_ = std::min(2 * pause_, kMaxPause);
  moved_ = true;
  not_before_ = now + pause_;
  return true;
}

}  // namespace djinn
