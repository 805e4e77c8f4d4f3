// A node's arguments as PyTorch takes them: everything that no run changes is
// built once, the rest are places to fill in.
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
#include "common/srg/structure.h"

namespace djinn::worker {

// A tensor operand and the bytes its storage must have.
struct Operand {
  srg::TensorView view;
  uint64_t extent_bytes = 0;
};

// One tensor; monostate is an undefined one (None in an optional list).
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
  // would hardly end (work_limit.h): every run of the call then fails, after
  // room was found for its results. The rest of the structure is as good as
  // ever.
  absl::Status unusable;
  // One value per schema argument; those of places have the place's type only.
  torch::jit::Stack values;
  // Ascending by argument.
  std::vector<Place> places;
};

// Checks number and types of the arguments against the schema, more strictly
// than FunctionSchema::checkArg(), which takes any integer for a data type, and
// refuses booleans for Scalars. The node passed srg::Validate().
// InvalidArgument with a plain text that names the argument; may throw
// c10::Error. `device` is the worker's, which a client does not name.
absl::StatusOr<CallTemplate> BuildCallTemplate(
    const c10::FunctionSchema& schema,
    const std::vector<srg::Argument>& arguments, c10::Device device);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_CALL_TEMPLATE_H_
