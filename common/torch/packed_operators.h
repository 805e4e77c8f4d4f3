// Lets operators on packed weights be sent to workers.
//
// For each of PyTorch's operators that takes packed weights and otherwise plain
// tensors, namespace djinn_packed has an operator of the same name. Each
// argument NAME that is an object, or a list of objects, becomes
// "Tensor[] NAME, int[] NAME_layout": its parts, as of packed_weights.h. The
// operator packs them again and calls PyTorch's operator. Packing takes longer
// than a product of few rows, so a caller that knows which parts did not change
// names a source of objects (UsePackedSource).
//
// All functions are thread-safe.
#ifndef COMMON_TORCH_PACKED_OPERATORS_H_
#define COMMON_TORCH_PACKED_OPERATORS_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/ivalue.h"
#include "absl/strings/string_view.h"

namespace djinn {

// The namespace of the operators, with the colons.
inline constexpr absl::string_view kPackedNamespace = "djinn_packed::";

// Defines the operators and their kernels for the CPU and metadata, once per
// process. PyTorch has no such kernels for CUDA devices.
void DefinePackedOperators();

// Provides the objects of calls.
class PackedSource {
 public:
  virtual ~PackedSource() = default;
  // Returns what PackAgain() (packed_weights.h) returns, or returned for the
  // same parts. `type` lives as long as the process. May throw c10::Error.
  virtual c10::IValue Get(const c10::Type& type, at::TensorList tensors,
                          c10::IntArrayRef layout) = 0;
};

// Names the source for the operators that the calling thread calls while this
// lives. Without one they call PackAgain(). The source outlives this.
class UsePackedSource {
 public:
  explicit UsePackedSource(PackedSource* source);
  ~UsePackedSource();
  UsePackedSource(const UsePackedSource&) = delete;
  UsePackedSource& operator=(const UsePackedSource&) = delete;

 private:
  PackedSource* const before_;
};

// An operator of PyTorch, and the one that takes its objects as parts.
struct PackedOperator {
  c10::OperatorHandle original;
  c10::OperatorHandle on_parts;
};

// Returns all operators that DefinePackedOperators() has defined.
std::vector<PackedOperator> PackedOperators();

}  // namespace djinn

#endif  // COMMON_TORCH_PACKED_OPERATORS_H_
