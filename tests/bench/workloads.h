// A chain of operators, and a small network that is being trained.
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
// Of every link of a chain.
inline constexpr int64_t kChainRows = 4;
inline constexpr int64_t kChainColumns = 16;
inline constexpr int64_t kChainBytes =
    kChainRows * kChainColumns * static_cast<int64_t>(sizeof(float));

// What links are combined with: a few tensors of each kind, used in turn. They
// are such that after the whole chain values are neither huge nor independent
// of its start; otherwise a stale result might pass for the right one.
struct ChainOperands {
  std::vector<at::Tensor> summands;
  std::vector<at::Tensor> factors;     // Each followed by its reciprocal.
  std::vector<at::Tensor> matrices;    // Orthogonal.
  std::vector<at::Tensor> row_biases;  // Small.
  std::vector<at::Tensor> row_signs;   // 1 and -1.
  at::Tensor row_zeros;
  // Whether all of them want gradients. If none does, chains run in inference
  // mode.
  bool gradients = false;
};

// The same ones every time.
ChainOperands MakeChainOperands(const at::Device& device, bool gradients);

// Where a chain starts in a round: different in each.
at::Tensor MakeChainStart(int round, const at::Device& device, bool gradients);

struct Chain {
  const char* op;
  // Views make no node and move no bytes.
  bool is_view;
  // Runs the chain; with gradients, all that a backward pass would need stays
  // until the result goes.
  at::Tensor (*run)(at::Tensor start, const ChainOperands& operands, int round);
};

// add, mul, mm, gelu, linear, layer_norm and views.
absl::Span<const Chain> Chains();

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

#endif  // TESTS_BENCH_WORKLOADS_H_
