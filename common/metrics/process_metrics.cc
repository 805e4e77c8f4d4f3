#include "common/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/version.h"

namespace djinn {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_usec) * 1e-6;
}

void CollectProcess(Exposition* out) {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    out->Counter("process_cpu_seconds_total", "Processor time used.",
                 Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  }
  uint64_t pages = 0;
  uint64_t resident = 0;
  if (std::ifstream("/proc/self/statm") >> pages >> resident) {
    out->Gauge("process_resident_memory_bytes", "Memory in use.",
               static_cast<double>(resident) *
                   static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  std::error_code error;
  uint64_t open = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++open;
  }
  if (!error) {
    out->Gauge("process_open_fds", "Open file descriptors of the process.",
               static_cast<double>(open));
  }
}

}  // namespace

MetricsSource ProcessMetrics(const std::string& role) {
  const double start = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  return [role, start](Exposition* out) {
    out->Gauge("djinn_build_info",
               "Always 1; the labels give the role and the version.", 1,
               {{"role", role}, {"version", kVersion}});
    out->Gauge("process_start_time_seconds",
               "Unix time at which the process started.", start);
    CollectProcess(out);
  };
}

}  // namespace djinn
