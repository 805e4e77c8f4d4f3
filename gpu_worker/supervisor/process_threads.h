// Reads how many threads an executor process has.
#ifndef GPU_WORKER_SUPERVISOR_PROCESS_THREADS_H_
#define GPU_WORKER_SUPERVISOR_PROCESS_THREADS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace djinn::worker {

// Reads /proc/PID/stat. Returns nothing where the system does not show it, as
// where /proc hides processes of this user (`hidepid`).
std::optional<uint64_t> ReadProcessThreads(pid_t pid);
// Does so for the text of that file, in which the process chooses its own name.
std::optional<uint64_t> ParseProcessThreads(absl::string_view stat);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_PROCESS_THREADS_H_
