// Converts results to the layout that the client inferred. The client knows
// what a CPU's kernels return. A GPU's kernels return the same elements, but
// some operators (matrix decompositions, convolutions, sums for gradients)
// return them in another memory order, with more precision, or return more
// tensors. Later calls must not see such differences.
#ifndef GPU_WORKER_DEVICE_CUDA_INFERRED_LAYOUT_H_
#define GPU_WORKER_DEVICE_CUDA_INFERRED_LAYOUT_H_

#include <vector>

#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Copies each of `results` that lies in memory of its own, but in another
// layout than inferred or with another floating-point type, and drops those
// that the client does not expect. Leaves differences that no copy removes
// (sizes, other types) for the executor to report. Enqueues commands on the
// device; may throw c10::Error. The caller is under c10::InferenceMode.
void LayOutAsInferred(absl::Span<const srg::Result> inferred,
                      const TorchTarget& target,
                      absl::Span<NodeResult> results);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_INFERRED_LAYOUT_H_
