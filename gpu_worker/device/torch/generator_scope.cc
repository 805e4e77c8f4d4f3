#include "gpu_worker/device/torch/generator_scope.h"

#include <mutex>

#include "c10/util/Exception.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

// Held while the process's default generator is in some session's state.
Mutex& DefaultGeneratorMutex() {
  static Mutex* const mutex = new Mutex;
  return *mutex;
}

// These functions lock the generator, as kernels do while they draw.
at::Tensor StateOf(at::Generator generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void SetState(at::Generator generator, const at::Tensor& state) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

GeneratorScope::~GeneratorScope() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (!holds_default_) return;
  try {
    SetState(generator_, outer_state_);
  } catch (...) {
    // Cannot fail: the state was this generator's own, so it is valid. If
    // setting it failed all the same, no call would draw from the generator
    // outside a scope.
  }
  DefaultGeneratorMutex().Unlock();
}

absl::Status GeneratorScope::SetFrom(const TorchBuffer& state) {
  return CatchTorch("INVALID_GENERATOR", [&] {
    SetState(generator_, target_.ReadState(state));
    return absl::OkStatus();
  });
}

absl::Status GeneratorScope::Load(const TorchBuffer& state) {
  generator_ = target_.ThreadGenerator();
  return SetFrom(state);
}

absl::Status GeneratorScope::LoadAsDefault(const TorchBuffer& state)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  generator_ = target_.DefaultGenerator();
  DefaultGeneratorMutex().Lock();
  try {
    outer_state_ = StateOf(generator_);
  } catch (...) {
    DefaultGeneratorMutex().Unlock();
    throw;
  }
  holds_default_ = true;
  return SetFrom(state);
}

void GeneratorScope::Store(const TorchBuffer& state) {
  const at::Tensor now = StateOf(generator_);
  TORCH_CHECK(now.nbytes() == state.size_bytes(), "generator state of ",
              state.size_bytes(), " bytes");
  state.WillBeWritten();
  target_.WriteState(state, now);
}

}  // namespace djinn::worker
