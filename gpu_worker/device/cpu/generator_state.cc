#include "gpu_worker/device/cpu/generator_state.h"

#include <cstring>
#include <mutex>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/mutex.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/cpu/torch_error.h"

namespace djinn::worker {
namespace {

// Held while the process's default generator is in some session's state.
Mutex& DefaultGeneratorMutex() {
  static Mutex* const mutex = new Mutex;
  return *mutex;
}

// Kernels lock the generator while they draw, so these do too.
at::Tensor StateOf(at::Generator generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void SetState(at::Generator generator, const at::Tensor& state) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

absl::Status SetState(const at::Generator& generator,
                      const TorchBuffer& state) {
  srg::TensorView view;
  view.data_type = srg::DataType::kUint8;
  view.sizes = {static_cast<int64_t>(state.size_bytes())};
  view.strides = {1};
  return CatchTorch("INVALID_GENERATOR", [&] {
    SetState(generator, MakeTensor(view, state.storage()));
    return absl::OkStatus();
  });
}

}  // namespace

uint64_t GeneratorStateBytes() {
  static const uint64_t bytes = SeededState(0)->size_bytes();
  return bytes;
}

std::shared_ptr<Buffer> SeededState(uint64_t seed) {
  const at::Tensor state = StateOf(at::detail::createCPUGenerator(seed));
  return std::make_shared<TorchBuffer>(state.storage());
}

GeneratorScope::~GeneratorScope() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (!holds_default_) return;
  try {
    SetState(generator_, outer_state_);
  } catch (...) {
    // The state was this generator's own, so it is valid; and nobody draws
    // from it outside a scope.
  }
  DefaultGeneratorMutex().Unlock();
}

absl::Status GeneratorScope::Load(const TorchBuffer& state) {
  // Making one seeds it, which costs more than setting its state.
  thread_local const at::Generator own = at::detail::createCPUGenerator();
  generator_ = own;
  return SetState(generator_, state);
}

absl::Status GeneratorScope::LoadAsDefault(const TorchBuffer& state)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  generator_ = at::detail::getDefaultCPUGenerator();
  DefaultGeneratorMutex().Lock();
  try {
    outer_state_ = StateOf(generator_);
  } catch (...) {
    DefaultGeneratorMutex().Unlock();
    throw;
  }
  holds_default_ = true;
  return SetState(generator_, state);
}

void GeneratorScope::Store(const TorchBuffer& state) {
  const at::Tensor now = StateOf(generator_);
  TORCH_CHECK(now.nbytes() == state.size_bytes(), "generator state of ",
              state.size_bytes(), " bytes");
  std::memcpy(state.data(), now.const_data_ptr(), now.nbytes());
}

}  // namespace djinn::worker
