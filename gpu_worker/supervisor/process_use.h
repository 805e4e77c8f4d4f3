// Reads what the system counts of an executor process.
#ifndef GPU_WORKER_SUPERVISOR_PROCESS_USE_H_
#define GPU_WORKER_SUPERVISOR_PROCESS_USE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace djinn::worker {

struct ProcessUse {
  uint64_t threads = 0;
  // Processor time of all its threads, past ones included.
  absl::Duration cpu;
};

// Reads /proc/PID/stat. Returns nothing where the system does not show it, as
// where /proc hides processes of this user (`hidepid`).
std::optional<ProcessUse> ReadProcessUse(pid_t pid);
// Does so for the text of that file, in which the process chooses its own name.
// `ticks` is the number of clock ticks per second.
std::optional<ProcessUse> ParseProcessUse(absl::string_view stat, double ticks);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_PROCESS_USE_H_
