#include "gpu_worker/device/torch/node_result.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {
namespace {

bool IsPlain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() &&
         !tensor.is_nested() && !tensor._is_zerotensor() &&
         tensor.has_storage();
}

// The view without its repeated elements: a stride of 0 says the same one
// element again.
srg::TensorView Distinct(const srg::TensorView& view) {
  srg::TensorView distinct = view;
  for (size_t i = 0; i < distinct.sizes.size(); ++i) {
    if (distinct.strides[i] == 0 && distinct.sizes[i] > 1) {
      distinct.sizes[i] = 1;
    }
  }
  // Bytes are moved as they are.
  distinct.conjugate = false;
  distinct.negative = false;
  return distinct;
}

}  // namespace

absl::Status ResultCollector::Add(const at::Tensor& tensor) {
  NodeResult result;
  if (!tensor.defined()) {
    results_->push_back(std::move(result));
    return absl::OkStatus();
  }
  if (!IsPlain(tensor) || !DescribeTensor(tensor, &result.view)) {
    return MakeError(
        absl::StatusCode::kUnimplemented, "UNSUPPORTED_RESULT",
        absl::StrCat("the operator returned a tensor of type ",
                     tensor.toString(), ", not a plain dense one"));
  }
  if (tensor.device() != target_.device()) {
    return MakeError(
        absl::StatusCode::kUnimplemented, "UNSUPPORTED_RESULT",
        absl::StrCat("the operator returned a tensor on ",
                     tensor.device().str(), ", not on the worker's device, ",
                     target_.device().str()));
  }
  const c10::Storage& storage = tensor.storage();
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  for (const uint32_t slot : operand_slots_) {
    const auto& buffer = static_cast<const TorchBuffer&>(*slots_[slot]);
    if (buffer.IsOver(impl)) {
      result.buffer = slots_[slot];
      result.aliased_slot = slot;
      results_->push_back(std::move(result));
      return absl::OkStatus();
    }
  }
  const uint64_t bytes = storage.nbytes();
  const bool shared =
      std::find(fresh_.begin(), fresh_.end(), impl) != fresh_.end();
  const bool dense =
      tensor.is_non_overlapping_and_dense() && tensor.nbytes() == bytes;
  if (!shared && (dense || srg::CoversStorage(Distinct(result.view), bytes))) {
    if (uninitialised_ && bytes > 0) {
      target_.FillWithZeros(storage);
    }
    fresh_.push_back(impl);
    result.buffer = std::make_shared<TorchBuffer>(storage);
  } else {
    // Bytes that the result does not name may be another tenant's.
    c10::Storage own = target_.Zeroed(bytes);
    if (!uninitialised_ && tensor.numel() > 0) {
      const srg::TensorView distinct = Distinct(result.view);
      MakeTensor(distinct, own).copy_(MakeTensor(distinct, storage));
    }
    fresh_.push_back(impl);
    result.buffer = std::make_shared<TorchBuffer>(std::move(own));
  }
  results_->push_back(std::move(result));
  return absl::OkStatus();
}

}  // namespace djinn::worker
