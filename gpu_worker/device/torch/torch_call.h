// One node of a structure, checked against its operator's schema and ready to
// run on any target.
#ifndef GPU_WORKER_DEVICE_TORCH_TORCH_CALL_H_
#define GPU_WORKER_DEVICE_TORCH_TORCH_CALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "gpu_worker/device/torch/call_template.h"

namespace djinn::worker {

struct TorchCall {
  explicit TorchCall(c10::OperatorHandle handle) : op(handle) {}

  c10::OperatorHandle op;
  CallTemplate call;
  // Slots that tensor operands name, ascending, each once.
  std::vector<uint32_t> operand_slots;
  // Positions of the schema's returns that are results: not aliases of written
  // arguments.
  std::vector<uint32_t> returns;
  size_t result_count = 0;
  std::optional<uint32_t> implicit_generator_slot;
  // Hole that holds a dropout probability whose being 0 means that the default
  // generator is left alone.
  std::optional<uint32_t> draws_unless_zero;
  // Returns memory that it has not written.
  bool uninitialised = false;
  // Whether it takes operands whose bytes lie in blocks (TorchBuffer): never,
  // in fast mode, always.
  enum class Blocks { kNever, kFast, kAlways } blocks = Blocks::kNever;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_TORCH_CALL_H_
