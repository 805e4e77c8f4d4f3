#include "common/transport/shared_memory/spin_wait.h"

#include <sched.h>

namespace djinn {

void SpinWait::Relax() {
#if defined(__x86_64__)
  for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
#elif defined(__aarch64__)
  for (int i = 0; i < 16; ++i) asm volatile("yield");
#endif
  sched_yield();
}

}  // namespace djinn
