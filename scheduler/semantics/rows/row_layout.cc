#include "scheduler/semantics/rows/row_layout.h"

namespace djinn::semantics {
namespace {

// Returns the size of a row in elements of the view's type; 0 when it is not a
// whole number.
int64_t RowElements(const srg::TensorView& view, const RowLayout& layout) {
  const int64_t element = srg::ElementSize(view.data_type);
  if (element == 0 || layout.row_bytes % element != 0) return 0;
  return layout.row_bytes / element;
}

}  // namespace

std::optional<RowDimension> FindRows(const srg::TensorView& view,
                                     const RowLayout& layout) {
  const int64_t row = RowElements(view, layout);
  int64_t period;
  if (row <= 0 || layout.rows < 2 ||
      __builtin_mul_overflow(row, layout.rows, &period)) {
    return std::nullopt;
  }
  // Neither offset nor extent overflows, because the view was validated.
  int64_t within = view.storage_offset % period;
  std::optional<RowDimension> found;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const int64_t size = view.sizes[i];
    const int64_t stride = view.strides[i];
    if (size == 0) return std::nullopt;
    if (size == 1 || stride % period == 0) continue;
    if (stride > row) return std::nullopt;
    const int64_t block = row / stride;
    const bool goes_through = row % stride == 0 && size % layout.rows == 0 &&
                              size / layout.rows == block;
    if (goes_through) {
      if (found.has_value()) return std::nullopt;
      found = RowDimension{static_cast<int>(i), block};
      within += (block - 1) * stride;
    } else {
      within += (size - 1) * stride;
    }
  }
  // The remaining elements stay within a row.
  if (within >= row) return std::nullopt;
  return found;
}

std::optional<RowLayout> LayoutOf(const srg::TensorView& view,
                                  const RowDimension& dimension, int64_t rows) {
  RowLayout layout;
  layout.rows = rows;
  layout.row_bytes = view.strides[dimension.dim] * dimension.block *
                     srg::ElementSize(view.data_type);
  if (FindRows(view, layout) != dimension) return std::nullopt;
  return layout;
}

RowSlopes SlopesOf(const srg::TensorView& view, const RowLayout& layout,
                   const RowDimension& dimension) {
  const int64_t row = RowElements(view, layout);
  const int64_t period = row * layout.rows;
  RowSlopes slopes;
  slopes.storage_offset = view.storage_offset / period * row;
  slopes.sizes.assign(view.sizes.size(), 0);
  slopes.sizes[dimension.dim] = dimension.block;
  for (const int64_t stride : view.strides) {
    slopes.strides.push_back(stride % period == 0 ? stride / layout.rows : 0);
  }
  return slopes;
}

}  // namespace djinn::semantics
