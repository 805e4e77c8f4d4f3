// Puts a generator into a given state for the length of one call.
#ifndef GPU_WORKER_DEVICE_TORCH_GENERATOR_SCOPE_H_
#define GPU_WORKER_DEVICE_TORCH_GENERATOR_SCOPE_H_

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gpu_worker/device/torch/torch_target.h"

namespace djinn::worker {

// The caller loads the state with either function, calls the operator, and
// calls Store(). A state that is not stored stays unchanged. For one thread,
// under c10::InferenceMode.
class GeneratorScope {
 public:
  // `target` outlives the scope.
  explicit GeneratorScope(const TorchTarget& target) : target_(target) {}
  // Restores the default generator's own state.
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

  // Loads the state for a generator that is passed as an argument. Returns
  // InvalidArgument (INVALID_GENERATOR) when the buffer holds no state.
  absl::Status Load(const TorchBuffer& state);

  // Puts the state into the process's default generator, for operators that
  // draw from it implicitly. Waits while another scope uses that generator.
  // Fails as Load() does.
  absl::Status LoadAsDefault(const TorchBuffer& state);

  const at::Generator& generator() const { return generator_; }

  // Writes the generator's state to the buffer it came from, or to a copy of
  // that buffer. Throws c10::Error without a change.
  void Store(const TorchBuffer& state);

 private:
  absl::Status SetFrom(const TorchBuffer& state);

  const TorchTarget& target_;
  at::Generator generator_;
  // The default generator's state before the scope; undefined if the scope uses
  // a thread's own generator.
  at::Tensor outer_state_;
  bool holds_default_ = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_TORCH_GENERATOR_SCOPE_H_
