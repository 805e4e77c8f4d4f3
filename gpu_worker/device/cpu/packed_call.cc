#include "gpu_worker/device/cpu/packed_call.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "gpu_worker/device/cpu/float_operands.h"

namespace djinn::worker {
namespace {

// Smaller ones cost no more than looking for their packed form.
constexpr int64_t kMinElements = 1024;
// Rows are laid out anew in memory of no account: of no more than this.
constexpr int64_t kMaxLaneElements = 1 << 20;

// The tensor as rows of `depth` neighbouring elements: how many, and how far
// apart. Nothing when it is not that.
struct Rows {
  int64_t count = 1;
  int64_t stride = 0;
};
std::optional<Rows> RowsOf(const srg::TensorView& view, int64_t depth) {
  const size_t rank = view.sizes.size();
  if (rank == 0 || view.sizes[rank - 1] != depth) return std::nullopt;
  if (depth > 1 && view.strides[rank - 1] != 1) return std::nullopt;
  Rows rows{.stride = depth};
  // Where several dimensions number the rows, these must be dense: the result
  // might lie otherwise.
  int64_t next = rank == 2 ? view.strides[0] : depth;
  for (size_t d = rank - 1; d-- > 0;) {
    if (view.sizes[d] == 1) continue;
    if (view.strides[d] != next) return std::nullopt;
    if (rows.count == 1) rows.stride = next;
    rows.count *= view.sizes[d];
    next *= view.sizes[d];
  }
  if (rows.stride < depth) return std::nullopt;
  return rows;
}

// Rows or columns of neighbouring elements that do not overlap, so that there
// are no more elements than the storage has.
bool IsPackable(const MatrixLayout& layout) {
  const bool by_column =
      layout.depth_stride == 1 &&
      (layout.width_stride >= layout.depth || layout.width == 1);
  const bool by_row =
      layout.width_stride == 1 &&
      (layout.depth_stride >= layout.width || layout.depth == 1);
  return (by_column || by_row) && layout.depth * layout.width >= kMinElements;
}

bool IsOne(const CallTemplate& call, size_t argument) {
  const c10::IValue& value = call.values[argument];
  for (const Place& place : call.places) {
    if (place.argument == argument) return false;
  }
  return value.isInt() && value.toInt() == 1;
}

// As ColumnsProduct::lanes.
std::unique_ptr<float[]> PackRows(const float* rows, int64_t row_stride,
                                  int64_t row_count, int64_t depth) {
  std::unique_ptr<float[]> lanes(
      new float[static_cast<size_t>(depth * kLanes)]);
  for (int64_t d = 0; d < depth; ++d) {
    float* const to = lanes.get() + d * kLanes;
    int64_t row = 0;
    for (; row < row_count; ++row) to[row] = rows[row * row_stride + d];
    for (; row < kLanes; ++row) to[row] = 0;
  }
  return lanes;
}

struct Product {
  const Operand* rows = nullptr;
  const Operand* weight = nullptr;
  // The weight is given as [width, depth].
  bool transposed = false;
  const Operand* bias = nullptr;
};

std::optional<Product> ProductOf(const c10::FunctionSchema& schema,
                                 const CallTemplate& call) {
  const std::string& name = schema.name();
  const std::string& overload = schema.overload_name();
  if (!overload.empty()) return std::nullopt;
  Product product;
  if (name == "aten::linear") {
    product = {FloatsAt(call, 0), FloatsAt(call, 1), /*transposed=*/true,
               FloatsAt(call, 2)};
    const bool has_bias =
        !call.places.empty() && call.places.back().argument == 2;
    if (has_bias && product.bias == nullptr) return std::nullopt;
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
      product.weight->view.sizes.size() != 2) {
    return std::nullopt;
  }
  // PyTorch's result of a matmul with a vector is a vector.
  const size_t rank = product.rows->view.sizes.size();
  if (rank < 2 ||
      (name != "aten::linear" && name != "aten::matmul" && rank != 2)) {
    return std::nullopt;
  }
  return product;
}

}  // namespace

PackedCall::Place PackedCall::PlaceOf(const Operand& operand) {
  return {operand.view.slot, operand.view.storage_offset, operand.extent_bytes};
}

std::optional<PackedCall> PackedCall::Match(const c10::FunctionSchema& schema,
                                            const CallTemplate& call) {
  if (!call.unusable.ok()) return std::nullopt;
  const std::optional<Product> product = ProductOf(schema, call);
  if (!product.has_value()) return std::nullopt;
  const srg::TensorView& weight = product->weight->view;
  const size_t depth_at = product->transposed ? 1 : 0;
  PackedCall packed;
  packed.weight_layout_ = {.offset = weight.storage_offset,
                           .depth = weight.sizes[depth_at],
                           .width = weight.sizes[1 - depth_at],
                           .depth_stride = weight.strides[depth_at],
                           .width_stride = weight.strides[1 - depth_at]};
  const MatrixLayout& layout = packed.weight_layout_;
  if (!IsPackable(layout)) return std::nullopt;
  const std::optional<Rows> rows = RowsOf(product->rows->view, layout.depth);
  if (!rows.has_value()) return std::nullopt;
  packed.rows_ = PlaceOf(*product->rows);
  packed.row_count_ = rows->count;
  packed.row_stride_ = rows->stride;
  packed.weight_ = PlaceOf(*product->weight);
  if (product->bias != nullptr) {
    const srg::TensorView& bias = product->bias->view;
    if (bias.sizes.size() != 1 || bias.sizes[0] != layout.width ||
        (layout.width > 1 && bias.strides[0] != 1)) {
      return std::nullopt;
    }
    packed.bias_ = PlaceOf(*product->bias);
  }
  packed.result_.data_type = srg::DataType::kFloat32;
  packed.result_.sizes = product->rows->view.sizes;
  packed.result_.sizes.back() = layout.width;
  packed.result_.strides.resize(packed.result_.sizes.size());
  int64_t stride = 1;
  for (size_t d = packed.result_.sizes.size(); d-- > 0;) {
    packed.result_.strides[d] = stride;
    stride *= packed.result_.sizes[d];
  }
  return packed;
}

const TorchBuffer* PackedCall::BufferAt(
    const Place& place, absl::Span<const std::shared_ptr<Buffer>> slots) {
  if (place.slot >= slots.size() || slots[place.slot] == nullptr ||
      slots[place.slot]->size_bytes() < place.extent_bytes) {
    return nullptr;
  }
  const auto* const buffer =
      static_cast<const TorchBuffer*>(slots[place.slot].get());
  return buffer->unmade() == nullptr ? buffer : nullptr;
}

const TorchBuffer* PackedCall::FindWeight(
    absl::Span<const std::shared_ptr<Buffer>> slots) const {
  return BufferAt(weight_, slots);
}

std::vector<PackedCall::SlotExtent> PackedCall::SlotExtents() const {
  std::vector<SlotExtent> extents;
  const auto add = [&extents](const Place& place) {
    for (SlotExtent& extent : extents) {
      if (extent.slot != place.slot) continue;
      extent.bytes = std::max(extent.bytes, place.extent_bytes);
      return;
    }
    extents.push_back({place.slot, place.extent_bytes});
  };
  add(rows_);
  add(weight_);
  if (bias_.has_value()) add(*bias_);
  return extents;
}

bool PackedCall::has_few_rows() const {
  return row_count_ <= kLanes && weight_layout_.depth_stride == 1 &&
         weight_layout_.depth <= kMaxLaneElements / kLanes;
}

const float* PackedCall::FloatsAt(const TorchBuffer& buffer,
                                  const Place& place) {
  return reinterpret_cast<const float*>(buffer.data()) + place.offset;
}

std::optional<PackedCall::Operands> PackedCall::FindOperands(
    absl::Span<const std::shared_ptr<Buffer>> slots) const {
  const TorchBuffer* const rows = BufferAt(rows_, slots);
  if (rows == nullptr) return std::nullopt;
  Operands operands{FloatsAt(*rows, rows_), row_stride_};
  if (bias_.has_value()) {
    const TorchBuffer* const bias = BufferAt(*bias_, slots);
    if (bias == nullptr) return std::nullopt;
    operands.bias = FloatsAt(*bias, *bias_);
  }
  return operands;
}

uint64_t PackedCall::result_bytes() const {
  return static_cast<uint64_t>(row_count_ * weight_layout_.width) *
         sizeof(float);
}

NodeResult PackedCall::ResultIn(c10::Storage storage) const {
  NodeResult result;
  result.view = result_;
  result.buffer = std::make_shared<TorchBuffer>(std::move(storage));
  return result;
}

absl::Status PackedCall::Run(const PackedMatrix* packed, const SumOrder& order,
                             absl::Span<const std::shared_ptr<Buffer>> slots,
                             std::vector<NodeResult>* results) const {
  const std::optional<Operands> operands = FindOperands(slots);
  if (!operands.has_value()) return absl::InternalError("no operands");
  c10::Storage storage = UninitialisedStorage(result_bytes());
  auto* const result_data = static_cast<float*>(storage.mutable_data());
  if (packed != nullptr) {
    packed->Multiply(operands->rows, row_stride_, row_count_, operands->bias,
                     order, result_data);
  } else {
    const TorchBuffer* const weight = FindWeight(slots);
    const PackedKernel* const kernel = BestPackedKernel();
    if (weight == nullptr || kernel == nullptr || !has_few_rows()) {
      return absl::InternalError("no weight");
    }
    const int64_t depth = weight_layout_.depth;
    const std::unique_ptr<float[]> lanes =
        PackRows(operands->rows, row_stride_, row_count_, depth);
    kernel->multiply_columns({.lanes = lanes.get(),
                              .row_count = row_count_,
                              .depth = depth,
                              .columns = FloatsAt(*weight, weight_),
                              .column_stride = weight_layout_.width_stride,
                              .width = weight_layout_.width,
                              .order = order,
                              .bias = operands->bias,
                              .result = result_data,
                              .result_stride = weight_layout_.width});
  }
  results->push_back(ResultIn(std::move(storage)));
  return absl::OkStatus();
}

}  // namespace djinn::worker
