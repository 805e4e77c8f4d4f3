#include "gpu_worker/device/torch/row_products.h"

#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/add.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/linear.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "c10/core/InferenceMode.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/switch_scope.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

bool IsOne(const CallTemplate& call, uint32_t argument) {
  const c10::IValue& value = call.values[argument];
  return PlaceAt(call, argument) == nullptr && value.isInt() &&
         value.toInt() == 1;
}

// The operands of a product. The matrix is [width, depth] if `transposed`, and
// [depth, width] otherwise.
struct Product {
  const Operand* rows = nullptr;
  const Operand* weight = nullptr;
  bool transposed = false;
  const Operand* bias = nullptr;
};

std::optional<Product> ProductOf(const c10::FunctionSchema& schema,
                                 const CallTemplate& call) {
  const std::string& name = schema.name();
  if (!schema.overload_name().empty()) return std::nullopt;
  Product product;
  if (name == "aten::linear") {
    product = {FloatsAt(call, 0), FloatsAt(call, 1), /*transposed=*/true,
               FloatsAt(call, 2)};
    const bool names_bias = PlaceAt(call, 2) != nullptr;
    if (names_bias && product.bias == nullptr) return std::nullopt;
  } else if (name == "aten::mm" || name == "aten::matmul") {
    product = {FloatsAt(call, 0), FloatsAt(call, 1)};
  } else if (name == "aten::addmm") {
    if (!IsOne(call, 3) || !IsOne(call, 4)) return std::nullopt;
    product = {FloatsAt(call, 1), FloatsAt(call, 2), /*transposed=*/false,
               FloatsAt(call, 0)};
    if (product.bias == nullptr) return std::nullopt;
  } else {
    return std::nullopt;
  }
  if (product.rows == nullptr || product.weight == nullptr ||
      product.weight->view.sizes.size() != 2 ||
      product.weight->view.data_type != product.rows->view.data_type) {
    return std::nullopt;
  }
  // A matmul with a vector returns a vector, so the rows must have two
  // dimensions.
  const size_t rank = product.rows->view.sizes.size();
  if (rank < 2 ||
      (name != "aten::linear" && name != "aten::matmul" && rank != 2)) {
    return std::nullopt;
  }
  return product;
}

srg::TensorView Dense(srg::DataType type, srg::Dimensions sizes) {
  srg::TensorView view;
  view.data_type = type;
  view.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    view.strides[d] = stride;
    stride *= sizes[d];
  }
  view.sizes = std::move(sizes);
  return view;
}

const TorchBuffer& BufferOf(const Operand& operand, RowsByMatrix::Slots slots) {
  const uint32_t slot = operand.view.slot;
  TORCH_CHECK(slot < slots.size() && slots[slot] != nullptr &&
                  slots[slot]->size_bytes() >= operand.extent_bytes,
              "an operand of a product is missing");
  return static_cast<const TorchBuffer&>(*slots[slot]);
}

at::Tensor TensorOf(const Operand& operand, RowsByMatrix::Slots slots) {
  return MakeTensor(operand.view, BufferOf(operand, slots).storage());
}

}  // namespace

std::optional<RowsByMatrix> RowsByMatrix::Match(
    const c10::FunctionSchema& schema, const CallTemplate& call) {
  if (!call.unusable.ok()) return std::nullopt;
  const std::optional<Product> product = ProductOf(schema, call);
  if (!product.has_value()) return std::nullopt;
  const srg::TensorView& rows = product->rows->view;
  // Rows in another layout may give a result in another layout.
  const bool dense = IsPlainContiguous(rows);
  if (!dense && (rows.sizes.size() != 2 || rows.strides[1] != 1)) {
    return std::nullopt;
  }
  RowsByMatrix matched;
  matched.rows_ = *product->rows;
  matched.weight_ = *product->weight;
  srg::TensorView& weight = matched.weight_.view;
  if (!product->transposed) {
    std::swap(weight.sizes[0], weight.sizes[1]);
    std::swap(weight.strides[0], weight.strides[1]);
  }
  if (rows.sizes.back() != matched.depth()) return std::nullopt;
  if (product->bias != nullptr) {
    const srg::TensorView& bias = product->bias->view;
    if (bias.sizes.size() != 1 || bias.sizes[0] != matched.width() ||
        bias.data_type != rows.data_type ||
        // Narrower types have so few bits that rounding a second time would
        // show.
        bias.data_type != srg::DataType::kFloat32) {
      return std::nullopt;
    }
    matched.bias_ = *product->bias;
  }
  matched.row_count_ = 1;
  for (size_t d = 0; d + 1 < rows.sizes.size(); ++d) {
    matched.row_count_ *= rows.sizes[d];
  }
  srg::Dimensions sizes = rows.sizes;
  sizes.back() = matched.width();
  matched.result_ = Dense(rows.data_type, std::move(sizes));
  return matched;
}

bool RowsByMatrix::GainsByJoining(int64_t least_elements) const {
  return row_count_ <= kMaxJoinedRows && weight_elements() >= least_elements &&
         depth() + width() <= kMaxCopied / row_count_;
}

RowProduct RowsByMatrix::AsRowProduct(uint32_t node) const {
  const srg::TensorView& view = weight();
  return {node, view.slot, row_count_,
          absl::HashOf(view.data_type, view.storage_offset, view.sizes[0],
                       view.sizes[1], view.strides[0], view.strides[1])};
}

const TorchBuffer& RowsByMatrix::WeightBuffer(Slots slots) const {
  return BufferOf(weight_, slots);
}

at::Tensor RowsByMatrix::Weight(Slots slots) const {
  return TensorOf(weight_, slots);
}

at::Tensor RowsByMatrix::Rows(Slots slots) const {
  return TensorOf(rows_, slots).reshape({row_count_, depth()});
}

std::optional<at::Tensor> RowsByMatrix::Bias(Slots slots) const {
  if (!bias_.has_value()) return std::nullopt;
  return TensorOf(*bias_, slots);
}

NodeResult RowsByMatrix::ResultOf(const at::Tensor& product) const {
  TORCH_CHECK(product.is_contiguous() && product.storage_offset() == 0,
              "a product lies otherwise");
  NodeResult result;
  result.view = result_;
  result.buffer = std::make_shared<TorchBuffer>(product.storage());
  return result;
}

at::Tensor MultiplyPlainly(const RowsByMatrix& product, const NodeInput& input,
                           const at::Tensor& rows) {
  return at::linear(rows, product.Weight(input.slots));
}

void ExecuteJoinedRows(absl::Span<const JoinedRows> calls,
                       MultiplyRows multiply) {
  if (calls.size() < 2) return;
  const SwitchScope switches{srg::Switches()};
  const JoinedRows& first = calls.front();
  std::vector<NodeResult> results;
  const absl::Status status = CatchTorch(kOperatorFailed, [&] {
    const c10::InferenceMode inference;
    std::vector<at::Tensor> rows;
    for (const auto& [product, call] : calls) {
      srg::TensorView weight = product->weight();
      weight.slot = first.product->weight().slot;
      TORCH_CHECK(weight == first.product->weight(),
                  "products with different matrices");
      rows.push_back(product->Rows(call->input->slots));
    }
    const at::Tensor all =
        multiply(*first.product, *first.call->input, at::cat(rows));
    int64_t next = 0;
    for (const auto& [product, call] : calls) {
      const at::Tensor own = all.narrow(0, next, product->row_count());
      next += product->row_count();
      const std::optional<at::Tensor> bias = product->Bias(call->input->slots);
      results.push_back(product->ResultOf(
          bias.has_value() ? at::add(own, *bias)
                           : own.clone(at::MemoryFormat::Contiguous)));
      call->results->reserve(call->results->size() + 1);
    }
    return absl::OkStatus();
  });
  // After an error, each call is executed by itself and reports its own error.
  if (!status.ok()) return;
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].call->results->push_back(std::move(results[i]));
    calls[i].call->done = true;
  }
}

}  // namespace djinn::worker
