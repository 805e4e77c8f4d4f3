#include "common/torch/overwrite_table.h"

#include <string>

#include "absl/container/flat_hash_map.h"
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

namespace {

// Operators, with all overloads, that update running statistics passed to them,
// and the flag that makes them do so. (The variants of vendors' libraries never
// run remotely; `_native_batch_norm_legit` and `_batch_norm_with_update` mark
// what they write.)
std::optional<absl::string_view> FlagOf(absl::string_view name) {
  static const auto* const kFlags =
      new absl::flat_hash_map<absl::string_view, absl::string_view>{
          {"aten::batch_norm", "training"},
          {"aten::native_batch_norm", "training"},
          // Its running statistics are written in evaluation mode, too: each
          // with the mean of copies of itself.
          {"aten::instance_norm", ""},
          {"aten::batch_norm_update_stats", ""},
          {"aten::batch_norm_gather_stats", ""},
          {"aten::batch_norm_gather_stats_with_counts", ""}};
  const auto found = kFlags->find(name);
  if (found == kFlags->end()) return std::nullopt;
  return found->second;
}

}  // namespace

std::optional<UnmarkedWrite> FindUnmarkedWrite(
    const c10::FunctionSchema& schema, size_t argument) {
  const std::optional<absl::string_view> flag = FlagOf(schema.name());
  if (!flag.has_value() || argument >= schema.arguments().size()) {
    return std::nullopt;
  }
  const c10::Argument& target = schema.arguments()[argument];
  if (target.name() != "running_mean" && target.name() != "running_var") {
    return std::nullopt;
  }
  UnmarkedWrite write;
  if (flag->empty()) return write;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == *flag) write.flag = i;
  }
  return write;
}

}  // namespace djinn
