// Implements the worker's operator library with PyTorch's operators.
#ifndef GPU_WORKER_DEVICE_CPU_TORCH_OPERATOR_LIBRARY_H_
#define GPU_WORKER_DEVICE_CPU_TORCH_OPERATOR_LIBRARY_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpu_worker/device/cpu/packed_objects.h"
#include "gpu_worker/device/cpu/prepacked_linear.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/custom_operators.h"

namespace djinn::worker {

// Thread-safe.
class TorchOperatorLibrary final : public OperatorLibrary {
 public:
  // `custom` operators run next to PyTorch's own. Programs share `packed`, in
  // fast mode also `prepacked`, and fuse attention if `fuse_attention` is set.
  // Calls on repeated elements may take `longest_call`.
  TorchOperatorLibrary(CustomOperators custom,
                       std::shared_ptr<PrepackedLinear> prepacked,
                       std::shared_ptr<PackedObjects> packed,
                       bool fuse_attention, absl::Duration longest_call)
      : custom_(std::move(custom)),
        prepacked_(std::move(prepacked)),
        packed_(std::move(packed)),
        fuse_attention_(fuse_attention),
        longest_call_(longest_call) {}

  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Graph& graph) override;
  void ExecuteJoined(absl::Span<JoinedCall> calls) override;
  absl::StatusOr<uint64_t> GeneratorBytes() override;
  absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(uint64_t seed) override;
  absl::Status CheckGenerator(absl::string_view state) override;

 private:
  const CustomOperators custom_;
  const std::shared_ptr<PrepackedLinear> prepacked_;
  const std::shared_ptr<PackedObjects> packed_;
  const bool fuse_attention_;
  const absl::Duration longest_call_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_TORCH_OPERATOR_LIBRARY_H_
