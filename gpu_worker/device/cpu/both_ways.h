// Carries a call out, and then, for an AloneTrial, twice more on operands made
// up for it, with all threads and with one, and compares what these made.
#ifndef GPU_WORKER_DEVICE_CPU_BOTH_WAYS_H_
#define GPU_WORKER_DEVICE_CPU_BOTH_WAYS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/cpu/alone_trial.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

using RunFunction = absl::FunctionRef<absl::Status(
    const NodeInput& input, std::vector<NodeResult>* results)>;

// An operand's slot and the type of its elements.
struct TypedSlot {
  uint32_t slot;
  srg::DataType type;
};

// Returns what `run` returned for `input`, which appended to `results`. For the
// trial it gets other numbers in the `operands`, which can be made up; of these
// it writes those that are `written`. `run_alone` does so in the trial's
// way for one thread. Neither throws.
absl::Status CarryOutBothWays(absl::Span<const TypedSlot> operands,
                              absl::Span<const uint32_t> written,
                              const NodeInput& input, RunFunction run,
                              RunFunction run_alone, AloneTrial* trial,
                              std::vector<NodeResult>* results);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_BOTH_WAYS_H_
