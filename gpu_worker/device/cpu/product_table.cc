#include "gpu_worker/device/cpu/product_table.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace djinn::worker {

StrictProduct::StrictProduct(absl::string_view shape,
                             std::shared_ptr<LearntFacts> learnt)
    : learnt_(std::move(learnt)) {
  if (learnt_ == nullptr) return;
  name_ = LearntFacts::NameOf(LearntFacts::Kind::kProduct, shape);
  const std::optional<LearntFacts::Numbers> known = learnt_->Find(name_);
  if (!known.has_value() || known->size() != 6) return;
  const LearntFacts::Numbers& numbers = *known;
  hint_.emplace();
  hint_->alone_is_equal = numbers[0] != 0;
  if (numbers[1] != 0) hint_->order = SumOrder{numbers[2], numbers[3]};
  fastest_.Start(numbers[4], numbers[5], &unpacked, &with_packed);
  runs_ = kRuns;
  if (hint_->alone_is_equal || hint_->order.has_value()) return;
  // PyTorch's own way is right whatever the hint says.
  begun_ = true;
  facts_ = *hint_;
  known_ = true;
}

void StrictProduct::Learn(const ProductFacts& facts) {
  facts_ = facts;
  known_.store(true, std::memory_order_release);
  if (learnt_ != nullptr) Note();
}

void StrictProduct::NoteMeasured() {
  if (learnt_ != nullptr && fastest_.Learn(unpacked, with_packed)) Note();
}

void StrictProduct::Note() {
  const SumOrder order = facts_.order.value_or(SumOrder());
  learnt_->Note(name_,
                {facts_.alone_is_equal, facts_.order.has_value(), order.parts,
                 order.block, fastest_.first(), fastest_.second()});
}

std::shared_ptr<StrictProduct> ProductTable::Find(
    const c10::FunctionSchema& schema, const CallTemplate& call) {
  std::string shape = schema.name();
  for (const Place& place : call.places) {
    const auto* const source = std::get_if<TensorSource>(&place.source);
    const Operand* const operand =
        source == nullptr ? nullptr : std::get_if<Operand>(source);
    if (operand == nullptr) continue;
    absl::StrAppend(&shape, " ", absl::StrJoin(operand->view.sizes, ","), "/",
                    absl::StrJoin(operand->view.strides, ","));
  }
  const auto make = [&] {
    return std::make_shared<StrictProduct>(shape, learnt_);
  };
  return products_.Find(shape, make);
}

}  // namespace djinn::worker
