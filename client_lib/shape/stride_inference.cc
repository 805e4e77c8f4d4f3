#include "client_lib/shape/stride_inference.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "ATen/ExpandUtils.h"
#include "c10/core/Contiguity.h"
#include "c10/util/Exception.h"
#include "c10/util/accumulate.h"

namespace djinn {
namespace {

using c10::DimVector;
using c10::IntArrayRef;
using c10::MemoryFormat;
using c10::ScalarType;

DimVector ContiguousStrides(IntArrayRef sizes) {
  DimVector strides(sizes.size());
  int64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

// The order in which at::TensorIterator visits the dimensions, fastest first.
// This class uses TensorIterator's insertion sort and its comparison, which is
// not always transitive.
class DimensionOrder {
 public:
  DimensionOrder(IntArrayRef shape, c10::ArrayRef<ResultMeta> operands)
      : shape_(shape) {
    for (const ResultMeta& operand : operands) AddOperand(operand);
    order_.resize(shape.size());
    std::iota(order_.rbegin(), order_.rend(), 0);
    for (size_t i = 1; i < order_.size(); ++i) SortIn(i);
  }

  const DimVector& order() const { return order_; }

 private:
  // Adds an operand, aligned to the right, with stride 0 for broadcast
  // dimensions.
  void AddOperand(const ResultMeta& operand) {
    DimVector strides(shape_.size(), 0);
    const size_t offset = shape_.size() - operand.sizes.size();
    for (size_t i = 0; i < operand.sizes.size(); ++i) {
      const bool broadcast = operand.sizes[i] == 1 && shape_[offset + i] != 1;
      strides[offset + i] = broadcast ? 0 : operand.strides[i];
    }
    strides_.push_back(std::move(strides));
  }

  // Returns a positive number if the two dimensions must be swapped, a negative
  // number if they are in order, and 0 if no operand decides.
  int Compare(int64_t first, int64_t second) const {
    for (const DimVector& strides : strides_) {
      if (strides[first] == 0 || strides[second] == 0) continue;
      if (strides[first] < strides[second]) return -1;
      if (strides[first] > strides[second]) return 1;
      if (shape_[first] > shape_[second]) return 1;
    }
    return 0;
  }

  void SortIn(size_t moving) {
    for (size_t i = moving; i-- > 0;) {
      const int comparison = Compare(order_[i], order_[moving]);
      if (comparison < 0) return;
      if (comparison > 0) {
        std::swap(order_[i], order_[moving]);
        moving = i;
      }
    }
  }

  const IntArrayRef shape_;
  std::vector<DimVector> strides_;
  DimVector order_;
};

// Returns dense strides for `sizes`. `order` lists the dimensions from fastest
// to slowest.
DimVector StridesInOrder(IntArrayRef sizes, const DimVector& order) {
  DimVector strides(sizes.size());
  int64_t next = 1;
  for (int64_t dim : order) {
    strides[dim] = next;
    next *= sizes[dim];
  }
  return strides;
}

// Handles the case in which every operand has the result's shape and one layout
// suits all operands. Returns false if the general order is needed.
bool SharedLayout(IntArrayRef shape, c10::ArrayRef<ResultMeta> operands,
                  ResultMeta* result) {
  bool contiguous = true, channels_last = true, dense = true;
  for (const ResultMeta& operand : operands) {
    if (IntArrayRef(operand.sizes) != shape) return false;
    contiguous &= IsContiguous(operand);
    channels_last &= IsContiguous(operand, MemoryFormat::ChannelsLast);
    dense &= IsDense(operand) && operand.strides == operands[0].strides;
  }
  if (contiguous) {
    result->strides = ContiguousStrides(shape);
  } else if (channels_last) {
    result->strides = c10::get_channels_last_strides_2d(shape);
  } else if (dense) {
    result->strides = operands[0].strides;
  } else {
    return false;
  }
  return true;
}

}  // namespace

ResultMeta Describe(const at::Tensor& tensor) {
  ResultMeta meta;
  meta.dtype = tensor.scalar_type();
  meta.sizes = DimVector(tensor.sizes());
  meta.strides = DimVector(tensor.strides());
  return meta;
}

ResultMeta Contiguous(ScalarType dtype, IntArrayRef sizes) {
  for (int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ",
                size, ": ", sizes);
  }
  ResultMeta meta;
  meta.dtype = dtype;
  meta.sizes.assign(sizes.begin(), sizes.end());
  meta.strides = ContiguousStrides(sizes);
  return meta;
}

ResultMeta InFormat(ScalarType dtype, IntArrayRef sizes, MemoryFormat format) {
  ResultMeta meta = Contiguous(dtype, sizes);
  if (format == MemoryFormat::ChannelsLast) {
    TORCH_CHECK(sizes.size() == 4,
                "required rank 4 tensor to use channels_last format");
    meta.strides = c10::get_channels_last_strides_2d(sizes);
  } else if (format == MemoryFormat::ChannelsLast3d) {
    TORCH_CHECK(sizes.size() == 5,
                "required rank 5 tensor to use channels_last_3d format");
    meta.strides = c10::get_channels_last_strides_3d(sizes);
  }
  return meta;
}

ResultMeta EmptyLike(ScalarType dtype, const ResultMeta& like) {
  ResultMeta meta = like;
  meta.dtype = dtype;
  if (!IsDense(like)) {
    meta.strides = DimVector(at::infer_dense_strides(like.sizes, like.strides));
  }
  return meta;
}

ResultMeta EmptyLike(ScalarType dtype, const at::Tensor& like) {
  return EmptyLike(dtype, Describe(like));
}

MemoryFormat SuggestFormat(const ResultMeta& meta) {
  const IntArrayRef sizes = meta.sizes, strides = meta.strides;
  if (c10::is_channels_last_strides_2d(sizes, strides)) {
    return MemoryFormat::ChannelsLast;
  }
  if (c10::is_channels_last_strides_3d(sizes, strides)) {
    return MemoryFormat::ChannelsLast3d;
  }
  return MemoryFormat::Contiguous;
}

int64_t NumElements(const ResultMeta& meta) {
  return c10::multiply_integers(meta.sizes);
}

bool IsContiguous(const ResultMeta& meta, MemoryFormat format) {
  const IntArrayRef sizes = meta.sizes, strides = meta.strides;
  switch (format) {
    case MemoryFormat::ChannelsLast:
      return c10::_compute_channels_last_contiguous_2d(sizes, strides);
    case MemoryFormat::ChannelsLast3d:
      return c10::_compute_channels_last_contiguous_3d(sizes, strides);
    default:
      return c10::_compute_contiguous(sizes, strides, NumElements(meta));
  }
}

bool IsDense(const ResultMeta& meta) {
  if (IsContiguous(meta) || IsContiguous(meta, MemoryFormat::ChannelsLast) ||
      IsContiguous(meta, MemoryFormat::ChannelsLast3d)) {
    return true;
  }
  DimVector dims(meta.sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  std::sort(dims.begin(), dims.end(), [&](int64_t left, int64_t right) {
    return meta.strides[left] < meta.strides[right];
  });
  int64_t next = 1;
  for (int64_t dim : dims) {
    if (meta.sizes[dim] < 2) continue;
    if (meta.strides[dim] != next) return false;
    next *= meta.sizes[dim];
  }
  return true;
}

DimVector Broadcast(IntArrayRef left, IntArrayRef right) {
  return at::infer_size_dimvector(left, right);
}

ResultMeta Elementwise(ScalarType dtype, c10::ArrayRef<ResultMeta> operands,
                       std::optional<ScalarType> common) {
  std::vector<ResultMeta> inputs;
  ResultMeta result;
  result.dtype = dtype;
  for (const ResultMeta& operand : operands) {
    const bool copied = common.has_value() && operand.dtype != *common;
    inputs.push_back(copied ? EmptyLike(*common, operand) : operand);
    result.sizes = Broadcast(result.sizes, operand.sizes);
  }
  if (SharedLayout(result.sizes, inputs, &result)) return result;

  const DimVector order = DimensionOrder(result.sizes, inputs).order();
  // An order that is already sorted gives contiguous strides. These differ from
  // computed strides if a size is 0.
  const bool plain = std::is_sorted(order.rbegin(), order.rend());
  result.strides = plain ? ContiguousStrides(result.sizes)
                         : StridesInOrder(result.sizes, order);
  return result;
}

ResultMeta Unsqueeze(ResultMeta meta, int64_t dim) {
  const int64_t rank = meta.sizes.size();
  TORCH_CHECK_INDEX(dim >= 0 && dim <= rank,
                    "Dimension out of range (expected to be in range of [0, ",
                    rank, "], but got ", dim, ")");
  const int64_t stride = dim >= rank ? 1 : meta.sizes[dim] * meta.strides[dim];
  meta.sizes.insert(meta.sizes.begin() + dim, 1);
  meta.strides.insert(meta.strides.begin() + dim, stride);
  return meta;
}

ResultMeta Squeeze(ResultMeta meta, int64_t dim) {
  const int64_t rank = meta.sizes.size();
  TORCH_CHECK_INDEX(dim >= 0 && dim < rank,
                    "Dimension out of range (expected to be in range of [0, ",
                    rank - 1, "], but got ", dim, ")");
  meta.sizes.erase(meta.sizes.begin() + dim);
  meta.strides.erase(meta.strides.begin() + dim);
  return meta;
}

ResultMeta ColumnMajor(ScalarType dtype, IntArrayRef sizes) {
  const int64_t rank = sizes.size();
  ResultMeta swapped = Contiguous(dtype, sizes);
  std::swap(swapped.sizes[rank - 2], swapped.sizes[rank - 1]);
  swapped.strides = ContiguousStrides(swapped.sizes);
  return Transpose(std::move(swapped), rank - 2, rank - 1);
}

ResultMeta Transpose(ResultMeta meta, int64_t first, int64_t second) {
  std::swap(meta.sizes[first], meta.sizes[second]);
  std::swap(meta.strides[first], meta.strides[second]);
  return meta;
}

}  // namespace djinn
