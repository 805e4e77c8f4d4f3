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

Choices::Choices(absl::string_view looks, std::shared_ptr<LearntFacts> learnt)
    : learnt_(std::move(learnt)) {
  if (learnt_ == nullptr) return;
  name_ = LearntFacts::NameOf(LearntFacts::Kind::kChoice, looks);
  const std::optional<LearntFacts::Numbers> known = learnt_->Find(name_);
  if (!known.has_value() || known->size() != 2) return;
  fastest_.Start((*known)[0], (*known)[1], &plain, &with_packed);
}

void Choices::NoteMeasured() {
  if (learnt_ == nullptr || !fastest_.Learn(plain, with_packed)) return;
  learnt_->Note(name_, {fastest_.first(), fastest_.second()});
}

std::shared_ptr<Choices> ChoiceTable::Find(const c10::FunctionSchema& schema,
                                           const CallTemplate& call) {
  std::string looks = LooksOf(schema, call);
  const auto make = [&] { return std::make_shared<Choices>(looks, learnt_); };
  return choices_.Find(looks, make);
}

}  // namespace djinn::worker
