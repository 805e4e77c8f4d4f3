#include "gpu_worker/device/cpu/choice_table.h"

#include <bit>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"

namespace djinn::worker {
namespace {

void AppendLooks(const TensorSource& source, std::string* looks) {
  const auto* const operand = std::get_if<Operand>(&source);
  if (operand == nullptr) return;
  const srg::TensorView& view = operand->view;
  absl::StrAppend(looks, " ", static_cast<int>(view.data_type), "[");
  int64_t dense = 1;
  bool is_dense = true;
  for (size_t d = view.sizes.size(); d-- > 0;) {
    const int64_t size = view.sizes[d];
    // Equal up to the next power of two.
    absl::StrAppend(
        looks, std::bit_width(static_cast<uint64_t>(size > 0 ? size - 1 : 0)),
        ",");
    is_dense = is_dense && (size == 1 || view.strides[d] == dense);
    dense *= size;
  }
  absl::StrAppend(looks, is_dense ? "]" : "]s");
}

std::string LooksOf(const c10::FunctionSchema& schema,
                    const CallTemplate& call) {
  std::string looks = absl::StrCat(schema.name(), ".", schema.overload_name());
  for (const Place& place : call.places) {
    if (const auto* source = std::get_if<TensorSource>(&place.source)) {
      AppendLooks(*source, &looks);
    } else if (const auto* list =
                   std::get_if<TensorListSource>(&place.source)) {
      for (const TensorSource& entry : list->entries) {
        AppendLooks(entry, &looks);
      }
    }
  }
  return looks;
}

}  // namespace

std::shared_ptr<Choices> ChoiceTable::Find(const c10::FunctionSchema& schema,
                                           const CallTemplate& call) {
  return choices_.Find(LooksOf(schema, call),
                       [] { return std::make_shared<Choices>(); });
}

}  // namespace djinn::worker
