#include "common/torch/unmarked_writes.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace djinn {
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
          // Written in evaluation mode, too, with the mean of copies of
          // themselves.
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
