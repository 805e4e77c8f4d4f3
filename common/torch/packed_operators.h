// Lets operators on packed weights be sent to workers.
//
// For each of PyTorch's operators that takes packed weights and otherwise plain
// tensors, namespace djinn_packed has an operator of the same name. Each
// argument NAME that is an object, or a list of objects, becomes
// "Tensor[] NAME, int[] NAME_layout": its parts, as of packed_weights.h. The
// operator packs them again and calls PyTorch's operator. It keeps the objects
// of recent calls, because packing takes longer than a product of few rows.
//
// All functions are thread-safe.
#ifndef COMMON_TORCH_PACKED_OPERATORS_H_
#define COMMON_TORCH_PACKED_OPERATORS_H_

#include <cstdint>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "absl/strings/string_view.h"

namespace djinn {

// The namespace of the operators, with the colons.
inline constexpr absl::string_view kPackedNamespace = "djinn_packed::";

// Defines the operators and their kernels for the CPU and metadata, once per
// process. PyTorch has no such kernels for CUDA devices.
void DefinePackedOperators();

// Limits the weights that the process keeps packed, 256 MiB by default. Takes
// effect with the next weight that is packed.
void SetMaxPackedBytes(uint64_t max_bytes);

// An operator of PyTorch, and the one that takes its objects as parts.
struct PackedOperator {
  c10::OperatorHandle original;
  c10::OperatorHandle on_parts;
};

// Returns all operators that DefinePackedOperators() has defined.
std::vector<PackedOperator> PackedOperators();

}  // namespace djinn

#endif  // COMMON_TORCH_PACKED_OPERATORS_H_
