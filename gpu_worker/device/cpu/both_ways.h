// Carries a call out with all threads, whose results count, and with one, and
// compares what they made, for an AloneTrial.
#ifndef GPU_WORKER_DEVICE_CPU_BOTH_WAYS_H_
#define GPU_WORKER_DEVICE_CPU_BOTH_WAYS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gpu_worker/device/cpu/alone_trial.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

using RunFunction = absl::FunctionRef<absl::Status(
    const NodeInput& input, std::vector<NodeResult>* results)>;

// Returns what `run` returned with all threads, which appended to `results` and
// wrote the slots `written`. With one thread it gets copies of those slots, and
// what it makes is dropped. They take turns at going first: whoever comes
// second finds the operands in the cache. `run` throws nothing.
absl::Status CarryOutBothWays(absl::Span<const uint32_t> written,
                              const NodeInput& input, RunFunction run,
                              AloneTrial* trial,
                              std::vector<NodeResult>* results);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_BOTH_WAYS_H_
