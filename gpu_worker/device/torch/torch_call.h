// Holds a node of a graph, checked against its operator's schema and ready to
// run on any target.
#ifndef GPU_WORKER_DEVICE_TORCH_TORCH_CALL_H_
#define GPU_WORKER_DEVICE_TORCH_TORCH_CALL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

using Slots = std::vector<uint32_t>;

// Sorts the slots and drops duplicates.
inline void SortUnique(Slots* slots) {
  std::sort(slots->begin(), slots->end());
  slots->erase(std::unique(slots->begin(), slots->end()), slots->end());
}

struct TorchCall {
  explicit TorchCall(c10::OperatorHandle handle) : op(handle) {}

  c10::OperatorHandle op;
  CallTemplate call;
  // The slots that tensor operands name, ascending, without duplicates.
  std::vector<uint32_t> operand_slots;
  // The positions of the schema's returns that are results rather than aliases
  // of written arguments.
  std::vector<uint32_t> returns;
  size_t result_count = 0;
  std::optional<uint32_t> implicit_generator_slot;
  // The floating-point hole that holds a dropout probability: if its value is
  // 0, the call does not draw from the default generator.
  std::optional<uint32_t> draws_unless_zero;
  // True if the operator returns memory that it has not written.
  bool uninitialised = false;
  // The positions of returned gradients that neither the call's mask nor the
  // graph asks for. A kernel may compute them along with others: oneDNN returns
  // the gradient of a convolution's weight with that of its bias.
  std::vector<uint32_t> unused_results;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_TORCH_CALL_H_
