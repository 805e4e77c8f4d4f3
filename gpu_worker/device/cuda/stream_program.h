// A graph that is ready to run behind streams, and its runs.
#ifndef GPU_WORKER_DEVICE_CUDA_STREAM_PROGRAM_H_
#define GPU_WORKER_DEVICE_CUDA_STREAM_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/cuda/device_health.h"
#include "gpu_worker/device/cuda/graph_store.h"
#include "gpu_worker/device/cuda/run_graph.h"
#include "gpu_worker/device/cuda/transfers.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/attention_pass.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/guards/index_table.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// The parts of a device that its programs use; all of them outlive the
// programs.
struct StreamEnvironment {
  Accelerator* accelerator = nullptr;
  const TorchTarget* target = nullptr;
  Transfers* transfers = nullptr;
  DeviceHealth* health = nullptr;
  GraphStore* graphs = nullptr;
  bool fuse_attention = true;
};

struct CheckedCall : TorchCall {
  explicit CheckedCall(TorchCall plain);

  // Arguments whose values are checked before the operator sees them.
  std::vector<IndexArgument> checked;
  // The index of the run's flag that is set when a checked value was wrong.
  // Valid if `checked` is not empty.
  size_t flag = 0;
  // True if the operator's kernels load several elements at once from the
  // operand's start, which must be aligned for that.
  bool wants_aligned = false;
  // The results as the client inferred them.
  std::vector<srg::Result> inferred;
  // The call's step of an attention chain that fast mode may fuse.
  std::optional<AttentionStep> attention;
  // The check of an operator of a common library; null for all others.
  std::unique_ptr<ArgumentCheck> library;
};

// Immutable except for its device graphs. Execute() fails as RunCall(), or with
// the device's health.
class StreamProgram final : public CompiledProgram {
 public:
  StreamProgram(StreamEnvironment environment, const srg::Graph& srg_graph,
                std::vector<TorchCall> calls);

  absl::Status Execute(uint32_t node, const NodeInput& input,
                       std::vector<NodeResult>* results) const override;
  std::unique_ptr<DeviceRun> BeginRun() const override;

  const StreamEnvironment& environment() const { return environment_; }
  // Returns the checked nodes, by flag.
  const std::vector<uint32_t>& checked_nodes() const { return checked_nodes_; }
  // Returns the error that the node's set flag stands for.
  absl::Status Failure(uint32_t node) const;
  // Returns null if runs are never recorded.
  RunGraph* graph() const { return graph_.get(); }

 private:
  absl::Status RunNode(uint32_t node, const NodeInput& input,
                       const at::Tensor& flags,
                       std::vector<NodeResult>* results) const;

  const StreamEnvironment environment_;
  std::vector<CheckedCall> calls_;
  std::vector<uint32_t> checked_nodes_;
  std::unique_ptr<RunGraph> graph_;
};

// The flags of a run, and its device graph while that is replayed.
class StreamRun final : public DeviceRun {
 public:
  explicit StreamRun(const StreamProgram& program) : program_(program) {}

  bool MayBeWhole() const override {
    return program_.graph() != nullptr && program_.graph()->possible();
  }
  bool ExecuteWhole(const NodeInput& input, absl::Span<const KeptResult> kept,
                    std::vector<std::shared_ptr<Buffer>>* results) override;
  absl::Status Settle(std::vector<LateFailure>* failures) override;
  void End(bool plain) override;

  // Returns the flags, which the first node that needs them allocates. May
  // throw c10::Error.
  const at::Tensor& flags();

 private:
  const StreamProgram& program_;
  at::Tensor flags_;
  std::vector<bool> reported_;
  std::shared_ptr<HeldGraph> replayed_;
  // The error of a replay that failed midway.
  absl::Status failed_;
  bool asked_ = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_STREAM_PROGRAM_H_
