// Matrix products with packed weights, by the vector instructions of the
// processor it runs on.
//
// A packed weight lies in panels: of `panel_width` neighbouring columns, all
// elements of the first row, then of the second, and so on, so that a kernel
// reads it from front to back. It is the same for any number of rows that it is
// multiplied with. Sums are taken in the order of the depth, with fused
// multiply-adds.
#ifndef GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_H_
#define GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_H_

#include <cstdint>

namespace djinn::worker {

// Rows of one matrix times one panel. Strides are in elements, from row to row.
struct PanelProduct {
  const float* rows = nullptr;
  int64_t row_stride = 0;
  int64_t row_count = 0;
  int64_t depth = 0;
  const float* panel = nullptr;
  // Begins every sum; `panel_width` elements, or null for zeros.
  const float* bias = nullptr;
  // Of every row `panel_width` elements are written.
  float* result = nullptr;
  int64_t result_stride = 0;
};

struct PackedKernel {
  const char* name;
  int64_t panel_width;
  // Rows that are best multiplied with a panel at once; they stay in the
  // processor's second cache. Before all other rows get theirs.
  int64_t (*rows_at_once)(int64_t depth);
  void (*multiply)(const PanelProduct& product);
};

// The fastest that this processor can run; null when there is none, as on other
// architectures.
const PackedKernel* BestPackedKernel();

// Each null where it was not built or this processor cannot run it.
const PackedKernel* Avx512PackedKernel();
const PackedKernel* Avx2PackedKernel();

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_H_
