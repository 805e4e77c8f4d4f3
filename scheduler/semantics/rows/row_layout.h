// Where the rows of a batch lie in a storage, and in a view of it.
#ifndef SCHEDULER_SEMANTICS_ROWS_ROW_LAYOUT_H_
#define SCHEDULER_SEMANTICS_ROWS_ROW_LAYOUT_H_

#include <cstdint>
#include <optional>

#include "common/srg/graph.h"

namespace djinn::semantics {

// Byte `o` of a storage is of row (o / row_bytes) % rows. One period of all
// rows, or several: the batch may be any dimension of what the storage holds.
struct RowLayout {
  int64_t rows = 0;
  int64_t row_bytes = 0;

  friend bool operator==(const RowLayout&, const RowLayout&) = default;
};

// The dimension of a view that goes through the rows: index / block is the row.
// So [4 rows, 3, 5] as [12, 5] has blocks of 3.
struct RowDimension {
  int dim = 0;
  int64_t block = 1;

  friend bool operator==(const RowDimension&, const RowDimension&) = default;
};

// Nothing if one dimension alone does not go through all rows, each once and in
// order, from the first one on.
std::optional<RowDimension> FindRows(const srg::TensorView& view,
                                     const RowLayout& layout);

// How a storage is laid out that the view covers, whose dimension goes through
// the rows; nothing if it does not do so in that storage.
std::optional<RowLayout> LayoutOf(const srg::TensorView& view,
                                  const RowDimension& dimension, int64_t rows);

// What offset, sizes and strides of such a view grow by with each row that the
// storage has more.
struct RowSlopes {
  int64_t storage_offset = 0;
  srg::Dimensions sizes;
  srg::Dimensions strides;
};
RowSlopes SlopesOf(const srg::TensorView& view, const RowLayout& layout,
                   const RowDimension& dimension);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROWS_ROW_LAYOUT_H_
