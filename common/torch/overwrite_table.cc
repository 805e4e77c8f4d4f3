#include "common/torch/overwrite_table.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace djinn {
namespace {

// Returns whether the operator is an in-place operator whose first argument is
// write-only.
bool WritesSelfOnly(absl::string_view name) {
  static const auto* const kNames = new absl::flat_hash_set<absl::string_view>{
      "aten::zero_",       "aten::fill_",      "aten::copy_",
      "aten::normal_",     "aten::uniform_",   "aten::bernoulli_",
      "aten::random_",     "aten::cauchy_",    "aten::exponential_",
      "aten::log_normal_", "aten::geometric_", "aten::_foreach_zero_"};
  return kNames->contains(name);
}

// Matches "out", "out0", "out12".
bool IsOutName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "out")) return false;
  for (const char c : name) {
    if (c < '0' || c > '9') return false;
  }
  return true;
}

}  // namespace

bool Overwrites(const c10::FunctionSchema& schema, size_t argument) {
  if (argument >= schema.arguments().size()) return false;
  const c10::Argument& target = schema.arguments()[argument];
  if (target.alias_info() == nullptr || !target.alias_info()->isWrite()) {
    return false;
  }
  if (argument == 0 && WritesSelfOnly(schema.name())) return true;
  // Overloads with output arguments are named "out", "Scalar_out", "out_mode".
  if (!absl::StrContains(schema.overload_name(), "out")) return false;
  // empty.out and its relatives do not write the memory.
  if (absl::StrContains(schema.name(), "empty")) return false;
  return target.kwarg_only() && IsOutName(target.name());
}

}  // namespace djinn
