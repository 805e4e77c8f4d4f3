// Defines chains of operators, and a small network that is trained.
#ifndef TESTS_BENCH_WORKLOADS_H_
#define TESTS_BENCH_WORKLOADS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"

namespace djinn::bench {

// Returns normally distributed values on the CPU, the same for the same seed.
at::Tensor RandomNormal(at::IntArrayRef sizes, double deviation, uint64_t seed);

inline constexpr int64_t kChainSteps = 10'000;
// Sizes of every link of a chain.
inline constexpr int64_t kChainRows = 4;
inline constexpr int64_t kChainColumns = 16;
inline constexpr int64_t kChainBytes =
    kChainRows * kChainColumns * static_cast<int64_t>(sizeof(float));

// Operands of a chain's calls: a few tensors of each kind, used in turn. They
// keep the values after the whole chain from being huge or independent of its
// start, because then a stale result might look right.
struct ChainOperands {
  std::vector<at::Tensor> summands;
  std::vector<at::Tensor> factors;     // each followed by its reciprocal
  std::vector<at::Tensor> matrices;    // Orthogonal.
  std::vector<at::Tensor> row_biases;  // Small.
  std::vector<at::Tensor> row_signs;   // 1 and -1.
  at::Tensor row_zeros;
  // True if all operands require gradients. If none does, chains run in
  // inference mode.
  bool gradients = false;
};

// Returns the same operands every time.
ChainOperands MakeChainOperands(const at::Device& device, bool gradients);

// Returns the start of a chain, which differs in each round.
at::Tensor MakeChainStart(int round, const at::Device& device, bool gradients);

struct Chain {
  const char* op;
  // Whether the chain has views only, which make no node and move no bytes.
  bool is_view;
  // Runs the chain. With gradients, everything that a backward pass would need
  // stays alive until the result is released.
  at::Tensor (*run)(at::Tensor start, const ChainOperands& operands, int round);
};

// Returns add, mul, mm, gelu, linear, layer_norm and views.
absl::Span<const Chain> Chains();

inline constexpr int64_t kMlpInputs = 784;
inline constexpr int64_t kMlpHidden = 128;
inline constexpr int64_t kMlpClasses = 10;

// A network that starts from the same weights on every device. Not thread-safe.
class Mlp {
 public:
  // If `registered`, each training step is a call of a registered callable
  // (djinn::CompiledFunction).
  explicit Mlp(const at::Device& device, bool registered = false);
  ~Mlp();

  // Takes one step of SGD on these examples, which are on the CPU. Returns the
  // loss before the step, read back.
  float Step(const at::Tensor& inputs, const at::Tensor& labels);

 private:
  class Impl;

  const std::unique_ptr<Impl> impl_;
};

}  // namespace djinn::bench

#endif  // TESTS_BENCH_WORKLOADS_H_
