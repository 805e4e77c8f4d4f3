// PyTorch's operators behind the worker's interface.
#ifndef GPU_WORKER_DEVICE_CPU_TORCH_OPERATOR_LIBRARY_H_
#define GPU_WORKER_DEVICE_CPU_TORCH_OPERATOR_LIBRARY_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "gpu_worker/device/cpu/cache_append.h"
#include "gpu_worker/device/cpu/choice_table.h"
#include "gpu_worker/device/cpu/cpu_tiers.h"
#include "gpu_worker/device/cpu/joined_products.h"
#include "gpu_worker/device/cpu/learnt_facts.h"
#include "gpu_worker/device/cpu/packed_weights.h"
#include "gpu_worker/device/cpu/product_table.h"
#include "gpu_worker/device/cpu/trial_pace.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/custom_operators.h"

namespace djinn::worker {

struct CpuCall;

// Thread-safe.
class TorchOperatorLibrary final : public OperatorLibrary {
 public:
  // `custom` run next to PyTorch's own. `weights` packs for programs, `rooms`
  // has what they append to, `learnt`, which may be null, is where they keep
  // what they learn. `clock` outlives this and all programs.
  TorchOperatorLibrary(CustomOperators custom,
                       std::shared_ptr<PackedWeights> weights,
                       std::shared_ptr<AppendRooms> rooms,
                       std::shared_ptr<LearntFacts> learnt, CpuTiers tiers,
                       Clock* clock)
      : custom_(std::move(custom)),
        tiers_(tiers),
        weights_(std::move(weights)),
        rooms_(std::move(rooms)),
        learnt_(std::move(learnt)),
        clock_(*clock),
        choices_(learnt_),
        products_(learnt_),
        joined_(weights_, learnt_, tiers, clock) {}

  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Structure& structure) override;
  void ExecuteJoined(absl::Span<JoinedCall> calls) override;
  absl::StatusOr<uint64_t> GeneratorBytes() override;
  absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(uint64_t seed) override;
  absl::Status CheckGenerator(absl::string_view state) override;

 private:
  // The call's trial begins with what was found of such calls.
  void StartFromLearnt(CpuCall* call);

  const CustomOperators custom_;
  const CpuTiers tiers_;
  const std::shared_ptr<PackedWeights> weights_;
  const std::shared_ptr<AppendRooms> rooms_;
  const std::shared_ptr<LearntFacts> learnt_;
  const std::shared_ptr<TrialPace> pace_ = std::make_shared<TrialPace>();
  Clock& clock_;
  ChoiceTable choices_;
  ProductTable products_;
  JoinedProducts joined_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_TORCH_OPERATOR_LIBRARY_H_
