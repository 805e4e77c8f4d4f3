// Matrix products by the vector instructions of the processor it runs on, their
// sums taken in an order of the caller's choice.
//
// A packed weight lies in panels: of `panel_width` neighbouring columns, all
// elements of the first row, then of the second, and so on, so that a kernel
// reads it from front to back. It is the same for any number of rows that it is
// multiplied with.
//
// Few rows are multiplied with a weight as it is, if the elements of its
// columns are neighbours: then the rows are what is packed, as `kLanes`
// columns.
#ifndef GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_H_
#define GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_H_

#include <cstdint>

namespace djinn::worker {

// In which order a sum of `depth` products is taken. The depth falls into parts
// of equal length (the last may be shorter), a part into blocks. A block is
// summed from front to back, with fused multiply-adds from zero on. A part's
// blocks are added up one after another, those of the first part to the bias,
// or to zero, so that nothing is left with a sign of its own, and then the
// parts. So does MKL, with parts and blocks that depend on the shape
// (product_trial.h).
struct SumOrder {
  int64_t parts = 1;
  int64_t block = 384;

  int64_t PartOf(int64_t depth) const { return (depth + parts - 1) / parts; }
  friend bool operator==(const SumOrder&, const SumOrder&) = default;
};

// Rows of one matrix times one panel. Strides are in elements, from row to row.
struct PanelProduct {
  const float* rows = nullptr;
  int64_t row_stride = 0;
  int64_t row_count = 0;
  int64_t depth = 0;
  const float* panel = nullptr;
  SumOrder order;
  // `panel_width` elements, or null for none.
  const float* bias = nullptr;
  // Of every row `panel_width` elements are written.
  float* result = nullptr;
  int64_t result_stride = 0;
  // Room for `row_count` times `panel_width` elements, where there are parts.
  float* scratch = nullptr;
};

// As many rows at most are multiplied with a weight that is not packed.
inline constexpr int64_t kLanes = 16;

struct ColumnsProduct {
  // Element d of row r at d * kLanes + r; the lanes behind the rows are zero.
  const float* lanes = nullptr;
  int64_t row_count = 0;
  int64_t depth = 0;
  // Column after column, `column_stride` elements apart.
  const float* columns = nullptr;
  int64_t column_stride = 0;
  int64_t width = 0;
  SumOrder order;
  // One for each column, or null for none.
  const float* bias = nullptr;
  float* result = nullptr;
  int64_t result_stride = 0;
};

struct PackedKernel {
  const char* name;
  int64_t panel_width;
  // Rows that are multiplied side by side.
  int64_t tile_rows;
  void (*multiply)(const PanelProduct& product);
  void (*multiply_columns)(const ColumnsProduct& product);
};

// Rows that are best multiplied with a panel before all others are: they stay
// in the processor's second cache.
int64_t RowsAtOnce(const PackedKernel& kernel, int64_t depth);

// The fastest that this processor can run; null when there is none, as on other
// architectures.
const PackedKernel* BestPackedKernel();

// Each null where it was not built or this processor cannot run it.
const PackedKernel* Avx512PackedKernel();
const PackedKernel* Avx2PackedKernel();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_H_
