#include "gpu_worker/device/cpu/apart.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"
#include "common/leave_processor.h"

namespace djinn::worker {
namespace {

// That this process may use.
int CountProcessors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return CPU_COUNT(&allowed);
}

}  // namespace

bool ApartWatch::Note(bool together, absl::Duration now) {
  if (!together) {
    if (moved_) pause_ = kMinPause;
    moved_ = false;
    return false;
  }
  if (now < not_before_) return false;
  if (moved_) pause_ = std::min(2 * pause_, kMaxPause);
  moved_ = true;
  not_before_ = now + pause_;
  return true;
}

void Apart::Begin(int thread, int threads) {
  static const int processors = CountProcessors();
  if (threads < 2 || threads > processors) return;
  const int processor = sched_getcpu();
  if (thread == 0) {
    first_.store(processor, std::memory_order_relaxed);
    return;
  }
  thread_local ApartWatch watch;
  const bool together = processor == first_.load(std::memory_order_relaxed);
  const absl::Duration now =
      absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  if (watch.Note(together, now)) LeaveProcessor();
}

}  // namespace djinn::worker
