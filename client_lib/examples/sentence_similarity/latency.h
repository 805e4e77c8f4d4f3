// Measures how long something takes, the first time and then.
#ifndef CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_LATENCY_H_
#define CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_LATENCY_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace djinn::examples {

struct Latency {
  absl::Duration first;        // Of the first run, which fills caches.
  absl::Duration warm_median;  // Of all later runs.
};

// Calls `run` once, then `warm_runs` (at least 1) times more. `now` is the
// clock, in a test a false one. Returns the error of the first run that fails.
absl::StatusOr<Latency> MeasureLatency(absl::FunctionRef<absl::Status()> run,
                                       int warm_runs,
                                       absl::FunctionRef<absl::Time()> now);

}  // namespace djinn::examples

#endif  // CLIENT_LIB_EXAMPLES_SENTENCE_SIMILARITY_LATENCY_H_
