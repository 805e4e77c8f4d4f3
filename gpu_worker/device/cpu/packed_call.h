// A node that multiplies by a matrix, made ready to be carried out by kernels
// of our own instead of by PyTorch: with a packed form of that matrix or, for
// few rows, with the matrix as it is.
#ifndef GPU_WORKER_DEVICE_CPU_PACKED_CALL_H_
#define GPU_WORKER_DEVICE_CPU_PACKED_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/function_schema.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/cpu/packed_kernel.h"
#include "gpu_worker/device/cpu/packed_matrix.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/call_template.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

// Immutable.
class PackedCall {
 public:
  // Nothing unless the call is a product (linear, addmm, mm, matmul) of plain
  // float32 rows with a matrix, with a bias per column or none, whose layouts
  // the packed kernels can take.
  static std::optional<PackedCall> Match(const c10::FunctionSchema& schema,
                                         const CallTemplate& call);

  // What the call reads of a slot: at least so many bytes, floats. Each slot
  // once.
  struct SlotExtent {
    uint32_t slot = 0;
    uint64_t bytes = 0;
  };
  std::vector<SlotExtent> SlotExtents() const;

  const MatrixLayout& weight() const { return weight_layout_; }
  uint32_t weight_slot() const { return weight_.slot; }
  int64_t row_count() const { return row_count_; }
  bool has_bias() const { return bias_.has_value(); }

  // The buffer with the weight, which contains it; null when the slots do not
  // hold what the call was made for.
  const TorchBuffer* FindWeight(
      absl::Span<const std::shared_ptr<Buffer>> slots) const;

  // Whether it can do without a packed form: few rows, and not too deep ones.
  bool has_few_rows() const;

  // What it multiplies and adds. Nothing when the slots do not hold it.
  struct Operands {
    const float* rows = nullptr;
    int64_t row_stride = 0;
    const float* bias = nullptr;  // null when there is none
  };
  std::optional<Operands> FindOperands(
      absl::Span<const std::shared_ptr<Buffer>> slots) const;

  // Of the result, and that as one; `storage` has these bytes.
  uint64_t result_bytes() const;
  NodeResult ResultIn(c10::Storage storage) const;

  // Appends the call's one result. An error (nothing was appended) says nothing
  // to a client: PyTorch's kernel says it better. Without a packed form
  // (has_few_rows()) one thread does the work. May throw.
  absl::Status Run(const PackedMatrix* packed, const SumOrder& order,
                   absl::Span<const std::shared_ptr<Buffer>> slots,
                   std::vector<NodeResult>* results) const;

 private:
  // Floats of a slot.
  struct Place {
    uint32_t slot = 0;
    int64_t offset = 0;
    uint64_t extent_bytes = 0;
  };

  static Place PlaceOf(const Operand& operand);
  static const float* FloatsAt(const TorchBuffer& buffer, const Place& place);
  // Null when the slot does not contain the place.
  static const TorchBuffer* BufferAt(
      const Place& place, absl::Span<const std::shared_ptr<Buffer>> slots);

  Place rows_;
  int64_t row_count_ = 0;
  int64_t row_stride_ = 0;
  Place weight_;
  MatrixLayout weight_layout_;
  std::optional<Place> bias_;
  // Dense; its slot is not set.
  srg::TensorView result_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PACKED_CALL_H_
