// Holds a node's arguments as PyTorch takes them. Values that no run changes
// are built once; the rest are places that a run fills in.
#ifndef GPU_WORKER_DEVICE_TORCH_CALL_TEMPLATE_H_
#define GPU_WORKER_DEVICE_TORCH_CALL_TEMPLATE_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "ATen/core/function_schema.h"
#include "ATen/core/ivalue.h"
#include "ATen/core/stack.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "common/srg/graph.h"

namespace djinn::worker {

// A tensor operand and the least size of its storage.
struct Operand {
  srg::TensorView view;
  uint64_t extent_bytes = 0;
};

// One tensor; monostate is an undefined tensor (None in an optional list).
using TensorSource = std::variant<std::monostate, Operand, srg::ScalarTensor>;

struct TensorListSource {
  std::vector<TensorSource> entries;
  // The schema's list is Tensor?[].
  bool optional = false;
};

// An argument that a run fills in.
struct Place {
  uint32_t argument = 0;
  // The call writes it.
  bool written = false;
  std::variant<TensorSource, TensorListSource, srg::FloatHole,
               srg::GeneratorSlot>
      source;
};

struct CallTemplate {
  // Not OK when an integer is beyond what kernels can compute with, or the call
  // would hardly end (work_limit.h). Every run of the call then fails, after
  // memory for its results was reserved; other calls of the graph do not.
  absl::Status unusable;
  // One value per schema argument. The value of a place has the right type and
  // nothing else.
  torch::jit::Stack values;
  // Ascending by argument.
  std::vector<Place> places;
};

// Checks number and types of the arguments against the schema. The check is
// stricter than FunctionSchema::checkArg(), which takes any integer for a data
// type, and refuses booleans for Scalars. The node passed srg::Validate().
// Returns InvalidArgument with a plain text that names the argument; may throw
// c10::Error. `device` is the worker's, which a client does not name.
absl::StatusOr<CallTemplate> BuildCallTemplate(
    const c10::FunctionSchema& schema,
    const std::vector<srg::Argument>& arguments, c10::Device device);

// Returns what fills the argument in a run, or null where the argument is part
// of the call.
const Place* PlaceAt(const CallTemplate& call, uint32_t argument);

// Whether the view has elements, all of them floating-point numbers of 16 or 32
// bits as they lie in memory.
bool HasPlainFloats(const srg::TensorView& view);

// Returns the argument if it is a tensor of plain floats that the call only
// reads, and null otherwise.
const Operand* FloatsAt(const CallTemplate& call, uint32_t argument);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_CALL_TEMPLATE_H_
