// Measures the cost of an idle session: the growth of the coordinator's and the
// worker's resident memory.
#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "djinn/djinn.h"
#include "tests/bench/benchmark.h"
#include "tests/bench/child_process.h"
#include "tests/bench/report.h"
#include "tests/bench/statistics.h"

namespace djinn::bench {
namespace {

// Sessions before the measurement, which pay for what exists once.
constexpr int kWarmUpSessions = 100;

// Returns a number from the process' status, such as "Threads" or "VmRSS"
// (KiB).
absl::StatusOr<int64_t> ProcessNumber(pid_t pid, const std::string& key) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t value;
    if (words >> name >> value && name == key + ":") return value;
  }
  return absl::NotFoundError(absl::StrCat("process ", pid, " has no ", key));
}

struct Usage {
  int64_t resident_bytes = 0;
  int64_t threads = 0;
};

absl::StatusOr<Usage> UsageOf(pid_t pid) {
  DJINN_ASSIGN_OR_RETURN(const int64_t kilobytes, ProcessNumber(pid, "VmRSS"));
  DJINN_ASSIGN_OR_RETURN(const int64_t threads, ProcessNumber(pid, "Threads"));
  return Usage{kilobytes << 10, threads};
}

class IdleSessionsBenchmark : public Benchmark {
 public:
  explicit IdleSessionsBenchmark(const Options& options) : options_(options) {}

  absl::string_view name() const override { return "idle_sessions"; }
  bool needs_session() const override { return false; }

  absl::Status Measure(std::vector<Row>* rows) override {
    EmbeddedClusterOptions cluster_options = ClusterOptions(options_);
    cluster_options.workers = options_.idle_workers;
    DJINN_ASSIGN_OR_RETURN(const auto cluster,
                           EmbeddedCluster::Start(cluster_options));
    DJINN_ASSIGN_OR_RETURN(const auto first,
                           OpenSessions(*cluster, kWarmUpSessions));
    const std::vector<std::pair<std::string, pid_t>> processes = {
        {"coordinator", cluster->coordinator_pid()},
        {"worker", cluster->worker_pids()[0]}};
    std::vector<Usage> before;
    for (const auto& [what, pid] : processes) {
      DJINN_ASSIGN_OR_RETURN(before.emplace_back(), UsageOf(pid));
    }
    const int sessions = options_.idle_sessions;
    const double start = WallNow();
    DJINN_ASSIGN_OR_RETURN(const auto all, OpenSessions(*cluster, sessions));
    const double seconds = WallNow() - start;
    for (size_t i = 0; i < processes.size(); ++i) {
      DJINN_ASSIGN_OR_RETURN(const Usage after, UsageOf(processes[i].second));
      const double bytes =
          static_cast<double>(after.resident_bytes - before[i].resident_bytes) /
          sessions;
      const int64_t threads = after.threads - before[i].threads;
      Row row;
      row.benchmark = std::string(name());
      row.variant = absl::StrCat(processes[i].first, ", of ",
                                 options_.idle_workers, " workers");
      row.numbers["seconds_to_open"] = seconds;
      row.numbers["bytes_per_session"] = bytes;
      row.numbers["threads"] = static_cast<double>(threads);
      row.notes.push_back(
          absl::StrFormat("%s a session, %d threads more; opened in %s",
                          FormatBytes(bytes), threads, FormatSeconds(seconds)));
      row.checked = absl::StrCat(sessions, " sessions open at once");
      rows->push_back(std::move(row));
    }
    return absl::OkStatus();
  }

 private:
  // Opens sessions that live as long as the result.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> OpenSessions(
      const EmbeddedCluster& cluster, int count) {
    const ConnectOptions connect = cluster.connect_options();
    DJINN_ASSIGN_OR_RETURN(
        std::unique_ptr<ChildProcess> peer,
        ChildProcess::Start(
            SiblingProgram("idle_sessions_peer"),
            {connect.coordinator, connect.token_file, absl::StrCat(count)}));
    for (int open = 0; open < count;) {
      DJINN_ASSIGN_OR_RETURN(const std::string line, peer->ReadLine());
      if (!absl::SimpleAtoi(line, &open)) return absl::InternalError(line);
    }
    return peer;
  }

  const Options options_;
};

}  // namespace

std::unique_ptr<Benchmark> MakeIdleSessions(const Options& options) {
  return std::make_unique<IdleSessionsBenchmark>(options);
}

}  // namespace djinn::bench
