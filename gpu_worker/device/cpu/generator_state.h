// Keeps random number generators as bytes in a buffer: PyTorch's state blob of
// its CPU generator (Mersenne twister, seed, the cached normal sample), as
// torch.get_rng_state() returns it.
#ifndef GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_
#define GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// Returns the size of every state. May throw c10::Error.
uint64_t GeneratorStateBytes();

// Returns the state after manual_seed(seed). May throw c10::Error.
std::shared_ptr<Buffer> SeededState(uint64_t seed);

// Returns InvalidArgument (INVALID_GENERATOR) unless a generator can be in the
// state that the bytes describe. PyTorch's own check accepts states with which
// the next draws read beyond the twister's words.
absl::Status CheckGeneratorState(absl::string_view bytes);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_
