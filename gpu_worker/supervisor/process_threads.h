// Reads how many threads an executor process has.
#ifndef GPU_WORKER_SUPERVISOR_PROCESS_THREADS_H_
#define GPU_WORKER_SUPERVISOR_PROCESS_THREADS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace djinn::worker {

// Returns the number of the process's threads, which it reads from
// /proc/PID/stat. Returns nullopt if the system does not show that file, for
// example because /proc hides other processes (`hidepid`).
std::optional<uint64_t> ReadProcessThreads(pid_t pid);
// Parses the text of that file. The text contains the process's name, which the
// process chooses and which may have any characters.
std::optional<uint64_t> ParseProcessThreads(absl::string_view stat);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_PROCESS_THREADS_H_
