// Measures the resources of a process, to detect leaks.
#ifndef TESTS_CHAOS_PROCESS_USAGE_H_
#define TESTS_CHAOS_PROCESS_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <ostream>

namespace djinn {

struct ProcessUsage {
  int64_t files = 0;
  int64_t threads = 0;
  int64_t resident_bytes = 0;
};

// Returns zeros when there is no such process.
ProcessUsage UsageOf(pid_t pid);

std::ostream& operator<<(std::ostream& out, const ProcessUsage& usage);

}  // namespace djinn

#endif  // TESTS_CHAOS_PROCESS_USAGE_H_
