// Holds a graph that is resolved against PyTorch's dispatcher and ready to run
// node by node.
#ifndef GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_
#define GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "gpu_worker/device/cpu/packed_objects.h"
#include "gpu_worker/device/cpu/prepacked_linear.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/attention_pass.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/row_products.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// Sets the number of threads that kernels called by this thread use; cheap
// after the first call. OpenMP counts threads per calling thread, and PyTorch
// passes its own count on only where it parallelises itself: without this call,
// a matrix product in a new thread would use every core, whatever the worker's
// options say.
void UseWorkersThreads();

// The call of a node, with what the CPU adds.
struct CpuCall : TorchCall {
  explicit CpuCall(TorchCall plain);

  // Checks the values that the kernel trusts; null for most operators.
  std::unique_ptr<ArgumentCheck> guard;
  // The call as a product of rows and a matrix, if fast mode may execute it on
  // another execution path.
  std::optional<RowsByMatrix> product;
  // The call's step of an attention chain that fast mode may fuse.
  std::optional<AttentionStep> attention;
  // The call is so short that fast mode executes it by one thread. A second
  // thread would make it wait for a core whenever the machine is busy.
  bool small = false;
  // The call writes elements that indices choose. Strict mode executes it by
  // one thread, so that elements which are chosen twice are added, or written,
  // in their order. PyTorch's threads race for them unless a program asks for
  // deterministic algorithms.
  bool in_order = false;
  // The call is of an operator on packed weights.
  bool packs = false;
};

// Returns whether fast mode executes the node by one thread. The node passed
// srg::Validate().
bool IsSmall(const c10::FunctionSchema& schema, const srg::Node& node);

// Immutable. Errors of Execute(): OPERATOR_FAILED with PyTorch's text,
// OUT_OF_MEMORY, INVALID_VIEW, INVALID_GENERATOR, UNSUPPORTED_RESULT.
class TorchProgram final : public CompiledProgram {
 public:
  // `target` outlives this.
  TorchProgram(std::vector<CpuCall> calls, const TorchTarget& target,
               std::shared_ptr<PrepackedLinear> prepacked,
               std::shared_ptr<PackedObjects> packed);

  absl::Status Execute(uint32_t node, const NodeInput& input,
                       std::vector<NodeResult>* results) const override;

  absl::Span<const RowProduct> products() const override { return products_; }
  const CpuCall& call(uint32_t node) const { return calls_[node]; }

 private:
  // Returns false and does nothing if the call is to be executed plainly.
  bool ExecutePrepacked(const RowsByMatrix& product, const NodeInput& input,
                        std::vector<NodeResult>* results) const;

  const std::vector<CpuCall> calls_;
  const TorchTarget& target_;
  const std::shared_ptr<PrepackedLinear> prepacked_;
  const std::shared_ptr<PackedObjects> packed_;
  std::vector<RowProduct> products_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_
