// A srg graph ready to run behind streams, and its runs.
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
#include "gpu_worker/device/torch/index_table.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// What programs use of their device; all outlives them.
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

  // Arguments whose values are looked at before the operator sees them.
  std::vector<IndexArgument> checked;
  // Which of the run's flags says that some were wrong; where there are such.
  size_t flag = 0;
  // Whether its kernels load several elements at once from wherever an operand
  // begins.
  bool wants_aligned = false;
  // As the client inferred them.
  std::vector<srg::Result> inferred;
  // The call's part in attention that fast mode may fuse.
  std::optional<AttentionStep> attention;
};

// Immutable but for its graph. Errors of Execute() as RunCall()'s, and the
// device's health.
class StreamProgram final : public CompiledProgram {
 public:
  StreamProgram(StreamEnvironment environment, const srg::Graph& srg_graph,
                std::vector<TorchCall> calls);

  absl::Status Execute(uint32_t node, const NodeInput& input,
                       std::vector<NodeResult>* results) const override;
  std::unique_ptr<DeviceRun> BeginRun() const override;

  const StreamEnvironment& environment() const { return environment_; }
  // Checked nodes, by flag.
  const std::vector<uint32_t>& checked_nodes() const { return checked_nodes_; }
  // What a set flag says.
  absl::Status Failure(uint32_t node) const;
  // Null where runs are never recorded.
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

// One run's flags, and its graph while it is replayed.
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

  // Made when a node is the first to need them. May throw c10::Error.
  const at::Tensor& flags();

 private:
  const StreamProgram& program_;
  at::Tensor flags_;
  std::vector<bool> reported_;
  std::shared_ptr<HeldGraph> replayed_;
  // Of a replay that went wrong in its middle.
  absl::Status failed_;
  bool asked_ = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_STREAM_PROGRAM_H_
