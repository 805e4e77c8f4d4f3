// Resolves a graph's nodes against PyTorch's dispatcher.
#ifndef GPU_WORKER_DEVICE_TORCH_COMPILER_NODE_COMPILER_H_
#define GPU_WORKER_DEVICE_TORCH_COMPILER_NODE_COMPILER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/torch/custom_operators.h"
#include "gpu_worker/device/torch/guards/work_limit.h"
#include "gpu_worker/device/torch/torch_call.h"

namespace djinn::worker {

// Returns one call per node. Calls that create tensors create them on `device`.
// Calls that would take longer than `longest` (work_limit.h) fail when they
// run. Fails as OperatorLibrary::Compile().
absl::StatusOr<std::vector<TorchCall>> CompileNodes(
    const srg::Graph& graph, const CustomOperators& custom, c10::Device device,
    absl::Duration longest = kLongestCall);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_COMPILER_NODE_COMPILER_H_
