// Random number generators as bytes in a buffer: PyTorch's own state blob of
// its CPU generator (Mersenne twister, seed, the normal samples kept back), as
// torch.get_rng_state() gives it.
#ifndef GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_
#define GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_

#include <cstdint>
#include <memory>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/cpu/torch_buffer.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// The size of every state. May throw c10::Error.
uint64_t GeneratorStateBytes();

// The state after manual_seed(seed). May throw c10::Error.
std::shared_ptr<Buffer> SeededState(uint64_t seed);

// InvalidArgument (INVALID_GENERATOR) unless the bytes are a state that a
// generator can be in. PyTorch's own check passes states with which the next
// draws read beyond the twister's words.
absl::Status CheckGeneratorState(absl::string_view bytes);

// A generator in a given state for the length of one call: Load one way or the
// other, call, Store. A state that is not stored stays as it was. One thread;
// under c10::InferenceMode.
class GeneratorScope {
 public:
  GeneratorScope() = default;
  // Takes the state out of the default generator again.
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

  // For a generator passed as an argument. InvalidArgument (INVALID_GENERATOR)
  // when the buffer holds no state.
  absl::Status Load(const TorchBuffer& state);

  // Puts the state into the process's default generator, for operators that
  // draw from it unasked. Waits while another scope has done so. Errors as
  // Load().
  absl::Status LoadAsDefault(const TorchBuffer& state);

  const at::Generator& generator() const { return generator_; }

  // Writes the generator's state to the buffer it came from or a copy of that.
  // Throws c10::Error without a change.
  void Store(const TorchBuffer& state);

 private:
  at::Generator generator_;
  // Of the default generator, before the scope; undefined for an own one.
  at::Tensor outer_state_;
  bool holds_default_ = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_
