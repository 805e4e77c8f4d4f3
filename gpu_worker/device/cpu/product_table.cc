#include "gpu_worker/device/cpu/product_table.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace djinn::worker {

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
  return products_.Find(std::move(shape),
                        [] { return std::make_shared<StrictProduct>(); });
}

}  // namespace djinn::worker
