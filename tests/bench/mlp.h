// A small network that is being trained.
#ifndef TESTS_BENCH_MLP_H_
#define TESTS_BENCH_MLP_H_

#include <memory>

#include "ATen/core/Tensor.h"

namespace djinn::bench {

inline constexpr int64_t kMlpInputs = 784;
inline constexpr int64_t kMlpHidden = 128;
inline constexpr int64_t kMlpClasses = 10;

// Starts from the same weights wherever it lives. Not thread-safe.
class Mlp {
 public:
  // `registered`: its step is a registered callable (djinn::CompiledFunction).
  explicit Mlp(const at::Device& device, bool registered = false);
  ~Mlp();

  // One step of SGD on these examples, which are on the CPU; returns the loss
  // before it, read back.
  float Step(const at::Tensor& inputs, const at::Tensor& labels);

 private:
  class Impl;

  const std::unique_ptr<Impl> impl_;
};

}  // namespace djinn::bench

#endif  // TESTS_BENCH_MLP_H_
