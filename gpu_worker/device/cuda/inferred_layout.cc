#include "gpu_worker/device/cuda/inferred_layout.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {
namespace {

bool IsFloating(srg::DataType type) {
  switch (type) {
    case srg::DataType::kFloat64:
    case srg::DataType::kFloat32:
    case srg::DataType::kFloat16:
    case srg::DataType::kBfloat16:
      return true;
    default:
      return false;
  }
}

// Compares strides, except those of dimensions that are never stepped over.
bool SameStrides(const srg::TensorView& a, const srg::TensorView& b) {
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    if (a.sizes[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

bool NeedsCopy(const srg::TensorView& inferred, const NodeResult& result) {
  if (result.buffer == nullptr || result.aliased_slot.has_value() ||
      inferred.sizes != result.view.sizes) {
    return false;
  }
  // The copy must have a distinct place for each element.
  const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(inferred);
  if (!extent.ok() || inferred.conjugate || inferred.negative ||
      !srg::CoversStorage(inferred, *extent)) {
    return false;
  }
  if (inferred.data_type != result.view.data_type) {
    return IsFloating(inferred.data_type) && IsFloating(result.view.data_type);
  }
  return std::find(inferred.sizes.begin(), inferred.sizes.end(), 0) ==
             inferred.sizes.end() &&
         !SameStrides(inferred, result.view);
}

}  // namespace

void LayOutAsInferred(absl::Span<const srg::Result> inferred,
                      const TorchTarget& target,
                      absl::Span<NodeResult> results) {
  for (size_t i = 0; i < std::min(inferred.size(), results.size()); ++i) {
    const auto* const view = std::get_if<srg::TensorView>(&inferred[i]);
    NodeResult& result = results[i];
    if (std::holds_alternative<srg::UndefinedResult>(inferred[i])) {
      static const NodeResult kUndefined;
      result = kUndefined;
      continue;
    }
    if (view == nullptr || !NeedsCopy(*view, result)) continue;
    c10::Storage storage = target.Zeroed(*srg::ExtentBytes(*view));
    MakeTensor(*view, storage)
        .copy_(MakeTensor(
            result.view,
            static_cast<const TorchBuffer&>(*result.buffer).storage()));
    result.view = *view;
    result.buffer = std::make_shared<TorchBuffer>(std::move(storage));
  }
}

}  // namespace djinn::worker
