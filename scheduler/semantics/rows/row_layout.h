// Locates the rows of a batch in a storage, and in a view of it.
#ifndef SCHEDULER_SEMANTICS_ROWS_ROW_LAYOUT_H_
#define SCHEDULER_SEMANTICS_ROWS_ROW_LAYOUT_H_

#include <cstdint>
#include <optional>

#include "common/srg/graph.h"

namespace djinn::semantics {

// Byte `o` of a storage belongs to row (o / row_bytes) % rows. The storage
// holds one period of all rows, or several, because the batch may be any of its
// dimensions.
struct RowLayout {
  int64_t rows = 0;
  int64_t row_bytes = 0;

  friend bool operator==(const RowLayout&, const RowLayout&) = default;
};

// The dimension of a view that goes through the rows: index / block is the row.
// For example, [4 rows, 3, 5] viewed as [12, 5] has blocks of 3.
struct RowDimension {
  int dim = 0;
  int64_t block = 1;

  friend bool operator==(const RowDimension&, const RowDimension&) = default;
};

// Returns the dimension that goes through all rows, each once and in order,
// from the first one on. Returns nothing if no single dimension does.
std::optional<RowDimension> FindRows(const srg::TensorView& view,
                                     const RowLayout& layout);

// Returns the layout of a storage that the view covers and whose rows
// `dimension` goes through; nothing if there is no such layout.
std::optional<RowLayout> LayoutOf(const srg::TensorView& view,
                                  const RowDimension& dimension, int64_t rows);

// How much the offset, sizes and strides of a view grow with each further row
// of the storage.
struct RowSlopes {
  int64_t storage_offset = 0;
  srg::Dimensions sizes;
  srg::Dimensions strides;
};
RowSlopes SlopesOf(const srg::TensorView& view, const RowLayout& layout,
                   const RowDimension& dimension);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROWS_ROW_LAYOUT_H_
