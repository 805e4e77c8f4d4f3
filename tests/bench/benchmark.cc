#include "tests/bench/benchmark.h"

#include <utility>

#include "common/status_macros.h"
#include "djinn/connect.h"
#include "tests/bench/stopwatch.h"

namespace djinn::bench {

EmbeddedClusterOptions ClusterOptions(const Options& options) {
  EmbeddedClusterOptions cluster;
  cluster.workers = 1;
  cluster.worker_threads = options.threads;
  return cluster;
}

absl::StatusOr<std::string> Transport() {
  DJINN_ASSIGN_OR_RETURN(Placement placement, WhereIs());
  return std::move(placement.transport);
}

absl::Status MeasureRounds(int rounds, Side side) {
  for (int round = 0; round < rounds; ++round) {
    Settle();
    DJINN_RETURN_IF_ERROR(side(round));
  }
  return absl::OkStatus();
}

absl::Status Interleave(int rounds, Side a, Side b) {
  for (int round = 0; round < rounds; ++round) {
    const bool a_first = round % 2 == 0;
    Settle();
    DJINN_RETURN_IF_ERROR(a_first ? a(round) : b(round));
    Settle();
    DJINN_RETURN_IF_ERROR(a_first ? b(round) : a(round));
  }
  return absl::OkStatus();
}

}  // namespace djinn::bench
