// Holds a node's arguments as PyTorch takes them. Values that no run changes
// are built once. Each of the others has a Place, which a run fills in.
#ifndef GPU_WORKER_DEVICE_TORCH_CALL_TEMPLATE_H_
#define GPU_WORKER_DEVICE_TORCH_CALL_TEMPLATE_H_

#include <cstdint>
#include <optional>
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

// The source of a tensor; monostate is an undefined tensor (None in an optional
// list).
using TensorSource = std::variant<std::monostate, Operand, srg::ScalarTensor>;

struct TensorListSource {
  std::vector<TensorSource> entries;
  // The schema's list is Tensor?[].
  bool optional = false;
};

// An argument that a run fills in.
struct Place {
  uint32_t argument = 0;
  // True if the call writes the argument.
  bool written = false;
  std::variant<TensorSource, TensorListSource, srg::FloatHole,
               srg::GeneratorSlot>
      source;
  // The earlier argument, if any, that reads the same view as this one. A run
  // passes one tensor for both, because some kernels ask whether two arguments
  // are the same tensor: attention projects query, key and value by one product
  // then.
  std::optional<uint32_t> same_as;
};

struct CallTemplate {
  // An error if an integer is beyond what kernels can compute with, or if the
  // call would take practically forever (work_limit.h). Every run of the call
  // then fails, after memory for its results was reserved; other calls of the
  // graph do not.
  absl::Status unusable;
  // Values by schema argument. The value of a place only has the right type.
  torch::jit::Stack values;
  // Ascending by argument.
  std::vector<Place> places;
};

// Checks number and types of the arguments against the schema and builds the
// template. The check is stricter than FunctionSchema::checkArg(), which takes
// any integer for a data type; it also refuses booleans for Scalars. The node
// passed srg::Validate(). Returns InvalidArgument with a plain text that names
// the argument; may throw c10::Error. `device` is the worker's; a client does
// not name it.
absl::StatusOr<CallTemplate> BuildCallTemplate(
    const c10::FunctionSchema& schema,
    const std::vector<srg::Argument>& arguments, c10::Device device);

// Returns what fills the argument in a run, or null if the argument is
// constant.
const Place* PlaceAt(const CallTemplate& call, uint32_t argument);

// Returns whether the view has elements, and all are floating-point numbers of
// 16 or 32 bits, neither conjugated nor negated.
bool HasPlainFloats(const srg::TensorView& view);

// Returns the argument if it is a tensor of plain floats that the call only
// reads, and null otherwise.
const Operand* FloatsAt(const CallTemplate& call, uint32_t argument);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_CALL_TEMPLATE_H_
