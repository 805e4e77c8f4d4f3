#include "gpu_worker/device/cpu/generator_state.h"

#include "ATen/CPUGeneratorImpl.h"
#include "gpu_worker/device/torch/torch_buffer.h"

namespace djinn::worker {

uint64_t GeneratorStateBytes() {
  static const uint64_t bytes = SeededState(0)->size_bytes();
  return bytes;
}

std::shared_ptr<Buffer> SeededState(uint64_t seed) {
  const at::Tensor state = at::detail::createCPUGenerator(seed).get_state();
  return std::make_shared<TorchBuffer>(state.storage());
}

}  // namespace djinn::worker
