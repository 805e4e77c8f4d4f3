// Finds the calls that multiply rows by a matrix, and executes such products of
// several runs as one.
//
// The joined product is PyTorch's own on any device: ExecuteJoinedRows()
// concatenates the rows of all runs, multiplies once, and copies each run's
// rows of the result to memory of its own, with the run's own bias added. No
// data of one run reaches another.
#ifndef GPU_WORKER_DEVICE_TORCH_ROW_PRODUCTS_H_
#define GPU_WORKER_DEVICE_TORCH_ROW_PRODUCTS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "ATen/core/Tensor.h"
#include "ATen/core/function_schema.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/call_template.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

// A call that multiplies rows by a matrix and may add a bias to each row of the
// result. Immutable.
class RowsByMatrix {
 public:
  using Slots = absl::Span<const std::shared_ptr<Buffer>>;

  // A product with more rows is bound by its arithmetic and gains nothing from
  // being joined.
  static constexpr int64_t kMaxJoinedRows = 16;
  // The joined call copies its rows and its result; they have fewer elements
  // than this.
  static constexpr int64_t kMaxCopied = 1 << 20;

  // Returns nothing unless the call is a linear, addmm, mm or matmul of rows
  // and a two-dimensional matrix, all of one floating-point type.
  static std::optional<RowsByMatrix> Match(const c10::FunctionSchema& schema,
                                           const CallTemplate& call);

  int64_t row_count() const { return row_count_; }
  int64_t depth() const { return weight_.view.sizes[1]; }
  int64_t width() const { return weight_.view.sizes[0]; }
  int64_t weight_elements() const { return depth() * width(); }
  // Returns the matrix as aten::linear takes it: [width, depth].
  const srg::TensorView& weight() const { return weight_.view; }

  // Returns whether the call gains by being joined with others.
  // `least_elements` is the size of the smallest weight that no cache of the
  // device holds.
  bool GainsByJoining(int64_t least_elements) const;
  RowProduct AsRowProduct(uint32_t node) const;

  // The following functions throw c10::Error if a slot does not hold what the
  // call names.
  const TorchBuffer& WeightBuffer(Slots slots) const;
  at::Tensor Weight(Slots slots) const;
  // Returns the rows as [row_count, depth].
  at::Tensor Rows(Slots slots) const;
  // Returns nothing if the call adds no bias.
  std::optional<at::Tensor> Bias(Slots slots) const;
  // Returns the call's result, given its elements in a storage of their own.
  NodeResult ResultOf(const at::Tensor& product) const;

 private:
  Operand rows_;
  int64_t row_count_ = 0;
  Operand weight_;
  std::optional<Operand> bias_;
  srg::TensorView result_;
};

struct JoinedRows {
  const RowsByMatrix* product = nullptr;
  JoinedCall* call = nullptr;
};

// Multiplies `rows` by the weight of the product, without its bias.
using MultiplyRows = absl::FunctionRef<at::Tensor(const RowsByMatrix& product,
                                                  const NodeInput& input,
                                                  const at::Tensor& rows)>;
at::Tensor MultiplyPlainly(const RowsByMatrix& product, const NodeInput& input,
                           const at::Tensor& rows);

// Executes either all calls or none, as OperatorLibrary::ExecuteJoined().
void ExecuteJoinedRows(absl::Span<const JoinedRows> calls,
                       MultiplyRows multiply);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_ROW_PRODUCTS_H_
