#include "gpu_worker/device/cpu/apart.h"

#include <sched.h>

#include <chrono>

#include "absl/time/time.h"
#include "common/leave_processor.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kMinPause = absl::Milliseconds(1);

// That this process may use.
int CountProcessors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return CPU_COUNT(&allowed);
}

}  // namespace

void Apart::Begin(int thread, int threads) {
  static const int processors = CountProcessors();
  if (threads < 2 || threads > processors) return;
  const int processor = sched_getcpu();
  if (thread == 0) {
    first_.store(processor, std::memory_order_relaxed);
    return;
  }
  thread_local LeavePace pace(kMinPause);
  const bool together = processor == first_.load(std::memory_order_relaxed);
  const absl::Duration now =
      absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  if (pace.Note(together, now)) LeaveProcessor();
}

}  // namespace djinn::worker
