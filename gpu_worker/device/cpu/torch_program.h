// A structure resolved against PyTorch's dispatcher, ready to run node by node.
#ifndef GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_
#define GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "gpu_worker/device/cpu/alone_trial.h"
#include "gpu_worker/device/cpu/both_ways.h"
#include "gpu_worker/device/cpu/cache_append.h"
#include "gpu_worker/device/cpu/choice_table.h"
#include "gpu_worker/device/cpu/cpu_tiers.h"
#include "gpu_worker/device/cpu/learnt_facts.h"
#include "gpu_worker/device/cpu/packed_call.h"
#include "gpu_worker/device/cpu/packed_weights.h"
#include "gpu_worker/device/cpu/parted_product.h"
#include "gpu_worker/device/cpu/product_table.h"
#include "gpu_worker/device/cpu/trial_pace.h"
#include "gpu_worker/device/cpu/whole_attention.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gpu_worker/device/torch/torch_call.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// One node, with the ways in which the CPU may carry it out.
struct CpuCall : TorchCall {
  explicit CpuCall(TorchCall plain);

  // Looks at what the kernel trusts; null for most.
  std::unique_ptr<ArgumentCheck> guard;
  // Where kernels of our own can carry it out.
  std::optional<PackedCall> packed;
  // Where the call is a product that gains by being joined with others'.
  std::optional<PackedCall> joinable;
  // Where every bit counts; set where `packed` is.
  std::shared_ptr<StrictProduct> strict_product;
  // Where it may append in place.
  std::optional<CacheAppend> append;
  // Where it is part of attention that may be carried out as a whole.
  std::optional<AttentionStep> attention;
  // How it is best carried out, shared with calls like it.
  std::shared_ptr<Choices> choices;
  // Where one thread may do where every bit counts; null where nothing is to be
  // tried: the call is such a product, draws, does what nobody here knows, or
  // has operands that cannot be made up, such as indices.
  std::unique_ptr<AloneTrial> alone;
  // Of that, where it is learnt for other processes.
  LearntFacts::Name alone_name;
  // Where it is a product that one thread may carry out in parts: the trial's
  // ways after the first, which is the call as it is.
  std::optional<PartedProduct> parted;
  // Of such a call: its tensor operands, and the slots that it writes, each
  // once.
  std::vector<TypedSlot> operands;
  std::vector<uint32_t> written_slots;
};

// Immutable but for its measurements. Errors of Execute(): OPERATOR_FAILED with
// PyTorch's text, OUT_OF_MEMORY, INVALID_VIEW, INVALID_GENERATOR,
// UNSUPPORTED_RESULT.
class TorchProgram final : public CompiledProgram {
 public:
  // `weights` is asked for packed forms where calls can do with them, `rooms`
  // where they append, `pace`, which all programs share, before a call is tried
  // in strict mode. Threads are one where `tiers` let it. `target` and `clock`
  // outlive this.
  TorchProgram(std::vector<CpuCall> calls, const TorchTarget& target,
               std::shared_ptr<PackedWeights> weights,
               std::shared_ptr<AppendRooms> rooms,
               std::shared_ptr<TrialPace> pace,
               std::shared_ptr<LearntFacts> learnt, CpuTiers tiers,
               Clock* clock);

  absl::Status Execute(uint32_t node, const NodeInput& input,
                       std::vector<NodeResult>* results) const override;

  absl::Span<const RowProduct> products() const override { return products_; }
  const CpuCall& call(uint32_t node) const { return calls_[node]; }

 private:
  absl::Status ExecuteAsIs(uint32_t node, const NodeInput& input,
                           std::vector<NodeResult>* results) const;
  // As PyTorch does.
  absl::Status ExecutePlain(const CpuCall& call, const NodeInput& input,
                            std::vector<NodeResult>* results) const;
  absl::Status ExecuteStrict(const CpuCall& call, const NodeInput& input,
                             std::vector<NodeResult>* results) const;
  // By one thread, in the way that the call's trial tries or found.
  absl::Status ExecuteAlone(const CpuCall& call, const NodeInput& input,
                            std::vector<NodeResult>* results) const;
  // Finds out how the product may be carried out, unless it is too soon after
  // another trial, or another run does.
  void TryStrictProduct(const CpuCall& call) const;
  absl::Status ExecuteStrictProduct(const CpuCall& call, const NodeInput& input,
                                    std::vector<NodeResult>* results) const;
  absl::Status ExecuteFast(uint32_t node, const NodeInput& input,
                           std::vector<NodeResult>* results) const;

  const std::vector<CpuCall> calls_;
  const TorchTarget& target_;
  const std::shared_ptr<PackedWeights> weights_;
  const std::shared_ptr<AppendRooms> rooms_;
  const std::shared_ptr<TrialPace> pace_;
  // Null: nothing is learnt for other processes.
  const std::shared_ptr<LearntFacts> learnt_;
  const CpuTiers tiers_;
  Clock& clock_;
  std::vector<RowProduct> products_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_TORCH_PROGRAM_H_
