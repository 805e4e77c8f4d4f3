#include "client_lib/capture/operators/host_use.h"

#include <ATen/core/jit_type.h>

#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"

namespace djinn::capture {
namespace {

// These operators, in all their overloads, neither round nor draw random
// numbers nor depend on a mode, as long as all numbers are integers.
const absl::flat_hash_set<std::string>& ExactOperators() {
  static const auto* const names = new absl::flat_hash_set<std::string>{
      "aten::add",
      "aten::all",
      "aten::amax",
      "aten::amin",
      "aten::any",
      "aten::arange",
      "aten::bitwise_and",
      "aten::bitwise_not",
      "aten::bitwise_or",
      "aten::bitwise_xor",
      "aten::cat",
      "aten::clone",
      "aten::constant_pad_nd",
      "aten::count_nonzero",
      "aten::cumsum",
      "aten::eq",
      "aten::full",
      "aten::full_like",
      "aten::ge",
      "aten::gt",
      "aten::le",
      "aten::logical_and",
      "aten::logical_not",
      "aten::logical_or",
      "aten::logical_xor",
      "aten::lt",
      "aten::max",
      "aten::min",
      "aten::mul",
      "aten::ne",
      "aten::neg",
      "aten::new_full",
      "aten::new_ones",
      "aten::new_zeros",
      "aten::ones",
      "aten::ones_like",
      "aten::rsub",
      "aten::sub",
      "aten::sum",
      "aten::zeros",
      "aten::zeros_like",
  };
  return *names;
}

bool Overwrites(const std::string& name) {
  return name == "aten::copy_" || name == "aten::fill_" ||
         name == "aten::zero_";
}

}  // namespace

HostUse HostUseOf(const c10::FunctionSchema& schema) {
  const bool makes_one_tensor =
      schema.returns().size() == 1 &&
      schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
  if (!makes_one_tensor) return HostUse::kNone;
  if (Overwrites(schema.name())) return HostUse::kOverwrites;
  const bool writes =
      absl::c_any_of(schema.arguments(), [](const c10::Argument& argument) {
        return argument.alias_info() != nullptr &&
               argument.alias_info()->isWrite();
      });
  return !writes && ExactOperators().contains(schema.name()) ? HostUse::kReturns
                                                             : HostUse::kNone;
}

}  // namespace djinn::capture
