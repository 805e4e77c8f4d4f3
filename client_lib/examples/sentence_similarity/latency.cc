#include "client_lib/examples/sentence_similarity/latency.h"

#include <algorithm>
#include <vector>

namespace djinn::examples {

absl::StatusOr<Latency> MeasureLatency(absl::FunctionRef<absl::Status()> run,
                                       int warm_runs,
                                       absl::FunctionRef<absl::Time()> now) {
  std::vector<absl::Duration> durations;
  for (int i = 0; i <= std::max(warm_runs, 1); ++i) {
    const absl::Time start = now();
    if (absl::Status status = run(); !status.ok()) return status;
    durations.push_back(now() - start);
  }
  std::sort(durations.begin() + 1, durations.end());
  const size_t warm = durations.size() - 1;
  // The two in the middle are one and the same if their number is odd.
  return Latency{
      .first = durations[0],
      .warm_median =
          (durations[1 + (warm - 1) / 2] + durations[1 + warm / 2]) / 2};
}

}  // namespace djinn::examples
