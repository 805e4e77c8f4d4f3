// What kind of work an operator is, by its name.
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
  kActivation,  // pointwise and not linear, of one tensor
  kPointwise,
  kReduction,
  kPooling,
  kResampling,
  kLayout,    // moves elements: copy, cat, clone
  kIndexing,  // moves elements to or from where other values say
  kRandom,
  kFactory,  // makes a tensor of nothing
  kLoss,
  kOptimizer,
  kBackward,
};
inline constexpr int kOpClassCount = static_cast<int>(OpClass::kBackward) + 1;

// "matmul".
absl::string_view OpClassName(OpClass op_class);
// The other way.
std::optional<OpClass> FindOpClass(absl::string_view name);

// `name` as in Frame::op(): without "aten::" and overload. A form that writes
// its operand is what the other form is.
OpClass ClassOf(absl::string_view name);

// Whether autograd alone calls it: a composite that needed no gradient would
// have stayed whole.
bool IsForAutograd(absl::string_view name);
// Whether it is a composite that is split wherever it reads what a gradient is
// recorded of.
bool IsKeptWhole(absl::string_view name);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_OPERATORS_H_
