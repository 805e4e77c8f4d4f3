// A weight, packed for fast products (packed_kernel.h).
//
// Life: constructed over memory for it, packed piece by piece, then immutable.
// Pack() is for one thread; once it returned true, Multiply() is thread-safe.
#ifndef GPU_WORKER_DEVICE_CPU_PACKED_MATRIX_H_
#define GPU_WORKER_DEVICE_CPU_PACKED_MATRIX_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "c10/core/Storage.h"
#include "gpu_worker/device/cpu/packed_kernel.h"

namespace djinn::worker {

// Where the elements of a matrix lie in a storage of floats: row `d` of
// `depth`, column `w` of `width`, at offset + d * depth_stride + w *
// width_stride.
struct MatrixLayout {
  int64_t offset = 0;
  int64_t depth = 0;
  int64_t width = 0;
  int64_t depth_stride = 0;
  int64_t width_stride = 0;
  friend bool operator==(const MatrixLayout&, const MatrixLayout&) = default;
};

class PackedMatrix {
 public:
  // What such a matrix takes.
  static uint64_t Bytes(const PackedKernel& kernel, const MatrixLayout& layout);

  // `memory` has Bytes(); `paid_for` is kept as long as the matrix. Depth and
  // width are not 0.
  PackedMatrix(const PackedKernel& kernel, const MatrixLayout& layout,
               c10::Storage memory, std::shared_ptr<void> paid_for);

  const MatrixLayout& layout() const { return layout_; }
  uint64_t bytes() const { return memory_.nbytes(); }

  // Packs some more of the storage that begins at `source`, roughly `bytes` of
  // it. True when that was the last of it.
  bool Pack(const float* source, uint64_t bytes);

  // Writes rows times this, plus the bias, if it is not null, to `result`,
  // which is dense. With as many threads as this thread's kernels have: which
  // does not change a bit. May throw std::bad_alloc.
  void Multiply(const float* rows, int64_t row_stride, int64_t row_count,
                const float* bias, const SumOrder& order, float* result) const;

  // Whether somebody multiplied since the last time this was asked.
  bool TestAndClearUsed() const {
    return used_.exchange(false, std::memory_order_relaxed);
  }

 private:
  int64_t panels() const;
  const float* panel(int64_t index) const;

  const PackedKernel& kernel_;
  const MatrixLayout layout_;
  // Given back after the memory.
  const std::shared_ptr<void> paid_for_;
  const c10::Storage memory_;
  int64_t packed_panels_ = 0;
  mutable std::atomic<bool> used_{false};
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PACKED_MATRIX_H_
