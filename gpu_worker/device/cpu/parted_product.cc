#include "gpu_worker/device/cpu/parted_product.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ATen/ops/mm.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

// Of what a thread's share is a multiple, besides one.
constexpr int64_t kUnits[] = {1, 2, 4, 8, 16};

const Operand* MatrixAt(const CallTemplate& call, uint32_t argument) {
  for (const Place& place : call.places) {
    if (place.argument != argument) continue;
    const auto* const source = std::get_if<TensorSource>(&place.source);
    if (source == nullptr || place.written) return nullptr;
    const auto* const operand = std::get_if<Operand>(source);
    if (operand == nullptr || operand->view.sizes.size() != 2 ||
        operand->view.data_type != srg::DataType::kFloat32 ||
        operand->view.conjugate || operand->view.negative) {
      return nullptr;
    }
    return operand;
  }
  return nullptr;
}

// The operand as it is in this run; undefined where its slot is another.
at::Tensor TensorOf(const Operand& operand, const NodeInput& input) {
  const uint32_t slot = operand.view.slot;
  if (slot >= input.slots.size() || input.slots[slot] == nullptr ||
      input.slots[slot]->size_bytes() < operand.extent_bytes) {
    return at::Tensor();
  }
  return MakeTensor(
      operand.view,
      static_cast<const TorchBuffer&>(*input.slots[slot]).storage());
}

}  // namespace

std::optional<PartedProduct> PartedProduct::Match(
    const c10::FunctionSchema& schema, const CallTemplate& call, int threads) {
  if (schema.name() != "aten::mm" || !schema.overload_name().empty() ||
      !call.unusable.ok()) {
    return std::nullopt;
  }
  const Operand* const left = MatrixAt(call, 0);
  const Operand* const right = MatrixAt(call, 1);
  if (left == nullptr || right == nullptr) return std::nullopt;
  PartedProduct product;
  product.left_ = *left;
  product.right_ = *right;
  for (const bool by_rows : {true, false}) {
    const int64_t all = by_rows ? left->view.sizes[0] : right->view.sizes[1];
    const int64_t share = (all + threads - 1) / threads;
    int64_t last = 0;
    for (const int64_t unit : kUnits) {
      const int64_t size = (share + unit - 1) / unit * unit;
      if (size >= all || size == last) continue;
      product.ways_.push_back({by_rows, size});
      last = size;
    }
  }
  if (product.ways_.empty()) return std::nullopt;
  return product;
}

absl::Status PartedProduct::Run(size_t way, const NodeInput& input,
                                std::vector<NodeResult>* results) const {
  return CatchTorch("OPERATOR_FAILED", [&]() -> absl::Status {
    const c10::InferenceMode inference;
    const at::Tensor left = TensorOf(left_, input);
    const at::Tensor right = TensorOf(right_, input);
    if (!left.defined() || !right.defined() || left.size(1) != right.size(0)) {
      return absl::InternalError("no operands");
    }
    NodeResult result;
    result.view.data_type = srg::DataType::kFloat32;
    result.view.sizes = {left.size(0), right.size(1)};
    result.view.strides = {right.size(1), 1};
    const c10::Storage storage = UninitialisedStorage(
        static_cast<uint64_t>(left.size(0) * right.size(1)) * sizeof(float));
    at::Tensor whole = MakeTensor(result.view, storage);
    const auto [by_rows, size] = ways_[way];
    const int64_t dimension = by_rows ? 0 : 1;
    const int64_t all = whole.size(dimension);
    for (int64_t at = 0; at < all; at += size) {
      const int64_t length = std::min(size, all - at);
      at::Tensor part = whole.narrow(dimension, at, length);
      at::mm_out(part, by_rows ? left.narrow(0, at, length) : left,
                 by_rows ? right : right.narrow(1, at, length));
    }
    result.buffer = std::make_shared<TorchBuffer>(storage);
    results->push_back(std::move(result));
    return absl::OkStatus();
  });
}

}  // namespace djinn::worker
