// Classifies operators by the kind of work that they do, from their names.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_OPERATORS_H_
#define SCHEDULER_SEMANTICS_PATTERNS_OPERATORS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace djinn::semantics {

enum class OpClass : uint8_t {
  kOther,
  kMatmul,
  kConvolution,
  kAttention,  // fused: softmax(q k) v in one call
  kSoftmax,
  kNormalization,
  kEmbedding,
  kRecurrent,
  kActivation,  // pointwise and nonlinear, of one tensor
  kPointwise,
  kReduction,
  kPooling,
  kResampling,
  kLayout,    // moves elements: copy, cat, clone
  kIndexing,  // moves elements to or from places that other values give
  kRandom,
  kFactory,  // makes a tensor without operands
  kLoss,
  kOptimizer,
  kBackward,
};
inline constexpr int kOpClassCount = static_cast<int>(OpClass::kBackward) + 1;

// Returns the name of the class, such as "matmul".
absl::string_view OpClassName(OpClass op_class);
// Returns the class of that name.
std::optional<OpClass> FindOpClass(absl::string_view name);

// Returns the class of an operator. `name` is as in Frame::op(): without
// "aten::" and overload. An in-place operator has the class of its out-of-place
// form.
OpClass ClassOf(absl::string_view name);

// Returns whether only autograd calls the operator: without a gradient, the
// composite that contains it would have stayed whole.
bool IsForAutograd(absl::string_view name);
// Returns whether the operator is a composite that is split wherever it reads a
// value for which a gradient is recorded.
bool IsKeptWhole(absl::string_view name);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_OPERATORS_H_
