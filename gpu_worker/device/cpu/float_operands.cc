#include "gpu_worker/device/cpu/float_operands.h"

#include <algorithm>

namespace djinn::worker {

bool HasPlainFloats(const srg::TensorView& view) {
  return view.data_type == srg::DataType::kFloat32 && !view.conjugate &&
         !view.negative &&
         std::all_of(view.sizes.begin(), view.sizes.end(),
                     [](int64_t size) { return size > 0; });
}

const Place* PlaceAt(const CallTemplate& call, uint32_t argument) {
  for (const Place& place : call.places) {
    if (place.argument == argument) return &place;
  }
  return nullptr;
}

const Operand* FloatsAt(const CallTemplate& call, uint32_t argument) {
  const Place* const place = PlaceAt(call, argument);
  if (place == nullptr || place->written) return nullptr;
  const auto* const source = std::get_if<TensorSource>(&place->source);
  if (source == nullptr) return nullptr;
  const auto* const operand = std::get_if<Operand>(source);
  return operand != nullptr && HasPlainFloats(operand->view) ? operand
                                                             : nullptr;
}

}  // namespace djinn::worker
