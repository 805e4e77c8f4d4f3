// A graph resolved against PyTorch's dispatcher, ready to run node by node.
#ifndef GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_
#define GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "gpu_worker/device/cpu/prepacked_linear.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/attention_pass.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/row_products.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Sets the number of threads that kernels called by this thread use; cheap from
// the second time on. OpenMP counts threads per calling thread, and PyTorch
// hands its own count on only where it parallelises itself: a matrix product in
// a new thread would use every core, whatever the worker was told.
void UseWorkersThreads();

// One node.
struct CpuCall : TorchCall {
  explicit CpuCall(TorchCall plain);

  // Checks the values that the kernel trusts; null for most.
  std::unique_ptr<ArgumentCheck> guard;
  // The call as a product of rows and a matrix, if it is one that fast mode may
  // execute otherwise.
  std::optional<RowsByMatrix> product;
  // The call's part in attention that fast mode may fuse.
  std::optional<AttentionStep> attention;
};

// Immutable. Errors of Execute(): OPERATOR_FAILED with PyTorch's text,
// OUT_OF_MEMORY, INVALID_VIEW, INVALID_GENERATOR, UNSUPPORTED_RESULT.
class TorchProgram final : public CompiledProgram {
 public:
  // `target` outlives this.
  TorchProgram(std::vector<CpuCall> calls, const TorchTarget& target,
               std::shared_ptr<PrepackedLinear> prepacked);

  absl::Status Execute(uint32_t node, const NodeInput& input,
                       std::vector<NodeResult>* results) const override;

  absl::Span<const RowProduct> products() const override { return products_; }
  const CpuCall& call(uint32_t node) const { return calls_[node]; }

 private:
  // False, with nothing done, where the call is to be executed as it is.
  bool ExecutePrepacked(const RowsByMatrix& product, const NodeInput& input,
                        std::vector<NodeResult>* results) const;

  const std::vector<CpuCall> calls_;
  const TorchTarget& target_;
  const std::shared_ptr<PrepackedLinear> prepacked_;
  std::vector<RowProduct> products_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_
