// Results as the client inferred them. It knows what a CPU's kernels return; a
// GPU's return the same elements, but for some operators (matrix
// decompositions, convolutions, sums for gradients) in another order in memory,
// with more precision, or more of them, which what comes after must not see.
#ifndef GPU_WORKER_DEVICE_CUDA_INFERRED_LAYOUT_H_
#define GPU_WORKER_DEVICE_CUDA_INFERRED_LAYOUT_H_

#include <vector>

#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Copies each of `results` that lies in memory of its own, but otherwise than
// inferred, or has another floating type; drops those that nobody expects. What
// no copy makes alike (sizes, other types) stays, for the executor to complain
// about. Asks the device; may throw c10::Error. Under c10::InferenceMode.
void LayOutAsInferred(absl::Span<const srg::Result> inferred,
                      const TorchTarget& target,
                      absl::Span<NodeResult> results);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_INFERRED_LAYOUT_H_
