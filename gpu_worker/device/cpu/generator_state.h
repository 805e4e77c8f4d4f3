// Keeps random number generators as bytes in a buffer: PyTorch's state blob of
// its CPU generator (Mersenne twister, seed, the cached normal sample), as
// torch.get_rng_state() returns it.
#ifndef GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_
#define GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_

#include <cstdint>
#include <memory>

#include "gpu_worker/device/device.h"

namespace djinn::worker {

// Returns the size of every state. May throw c10::Error.
uint64_t GeneratorStateBytes();

// Returns the state after manual_seed(seed). May throw c10::Error.
std::shared_ptr<Buffer> SeededState(uint64_t seed);

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_GENERATOR_STATE_H_
