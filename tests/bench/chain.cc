#include "tests/bench/chain.h"

#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/Generator.h"
#include "ATen/ops/add.h"
#include "ATen/ops/eye.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/layer_norm.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/mul.h"
#include "ATen/ops/outer.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/reciprocal.h"
#include "ATen/ops/sign.h"
#include "ATen/ops/zeros.h"
#include "c10/core/InferenceMode.h"

namespace djinn::bench {
namespace {

constexpr int kOperandsOfAKind = 4;

// `step` is called as step(x, i); inlined, so that every chain is the loop that
// a program would write.
template <typename Step>
at::Tensor Repeat(at::Tensor x, const ChainOperands& operands, Step step) {
  const c10::InferenceMode inference(!operands.gradients);
  for (int64_t i = 0; i < kChainSteps; ++i) x = step(x, i);
  return x;
}

// The one whose turn it is.
const at::Tensor& Turn(const std::vector<at::Tensor>& operands, int64_t i) {
  return operands[static_cast<size_t>(i) % kOperandsOfAKind];
}

// A factor that is another one at every step and in every round; its sign
// changes so that sums stay small.
double Scale(int64_t i, int round) {
  const double size = 0.5 + static_cast<double>((7 * i + 3 * round) % 13) / 16;
  return i % 2 == 0 ? size : -size;
}

at::Tensor RunAdd(at::Tensor start, const ChainOperands& o, int round) {
  return Repeat(std::move(start), o, [&](const at::Tensor& x, int64_t i) {
    return at::add(x, Turn(o.summands, i), Scale(i, round));
  });
}

at::Tensor RunMul(at::Tensor start, const ChainOperands& o, int) {
  return Repeat(std::move(start), o, [&](const at::Tensor& x, int64_t i) {
    return at::mul(x, Turn(o.factors, i));
  });
}

at::Tensor RunMm(at::Tensor start, const ChainOperands& o, int) {
  return Repeat(std::move(start), o, [&](const at::Tensor& x, int64_t i) {
    return at::mm(x, Turn(o.matrices, i));
  });
}

at::Tensor RunGelu(at::Tensor start, const ChainOperands& o, int) {
  return Repeat(std::move(start), o,
                [&](const at::Tensor& x, int64_t) { return at::gelu(x); });
}

at::Tensor RunLinear(at::Tensor start, const ChainOperands& o, int) {
  return Repeat(std::move(start), o, [&](const at::Tensor& x, int64_t i) {
    return at::linear(x, Turn(o.matrices, i), Turn(o.row_biases, i));
  });
}

at::Tensor RunLayerNorm(at::Tensor start, const ChainOperands& o, int) {
  return Repeat(std::move(start), o, [&](const at::Tensor& x, int64_t i) {
    return at::layer_norm(x, {kChainColumns}, Turn(o.row_signs, i),
                          o.row_zeros);
  });
}

// Every four views lead back to the first shape.
at::Tensor RunViews(at::Tensor start, const ChainOperands& o, int) {
  return Repeat(std::move(start), o, [](const at::Tensor& x, int64_t i) {
    switch (i % 4) {
      case 0:
        return x.view({2 * kChainRows, kChainColumns / 2});
      case 1:
        return x.view({kChainRows, kChainColumns});
      default:
        return x.transpose(0, 1);
    }
  });
}

constexpr Chain kChains[] = {
    {"add", false, RunAdd},       {"mul", false, RunMul},
    {"mm", false, RunMm},         {"gelu", false, RunGelu},
    {"linear", false, RunLinear}, {"layer_norm", false, RunLayerNorm},
    {"views", true, RunViews},
};

// Uniform in [low, high).
at::Tensor Random(at::IntArrayRef sizes, double low, double high,
                  at::Generator generator) {
  return at::rand(sizes, generator, at::kFloat) * (high - low) + low;
}

// Mirrors vectors: orthogonal, so that products neither grow nor shrink.
at::Tensor RandomMirror(int64_t size, const at::Generator& generator) {
  const at::Tensor normal = Random({size}, -1, 1, generator);
  return at::eye(size, at::kFloat) -
         at::outer(normal, normal) * (2 / normal.square().sum());
}

}  // namespace

ChainOperands MakeChainOperands(const at::Device& device, bool gradients) {
  const auto move = [&](const at::Tensor& tensor) {
    return tensor.to(device).requires_grad_(gradients);
  };
  const at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(/*seed=*/11);
  ChainOperands operands;
  operands.gradients = gradients;
  at::Tensor factor;
  for (int i = 0; i < kOperandsOfAKind; ++i) {
    operands.summands.push_back(
        move(Random({kChainRows, kChainColumns}, -1, 1, generator)));
    factor = i % 2 == 0 ? Random({kChainRows, kChainColumns}, 0.5, 2, generator)
                        : factor.reciprocal();
    operands.factors.push_back(move(factor));
    operands.matrices.push_back(move(RandomMirror(kChainColumns, generator)));
    operands.row_biases.push_back(
        move(Random({kChainColumns}, -0.01, 0.01, generator)));
    operands.row_signs.push_back(
        move(Random({kChainColumns}, -1, 1, generator).sign()));
  }
  operands.row_zeros = move(at::zeros({kChainColumns}, at::kFloat));
  return operands;
}

at::Tensor MakeChainStart(int round, const at::Device& device, bool gradients) {
  // Where gelu() changes a value little: anywhere else ten thousand of them
  // would end in zero.
  return Random({kChainRows, kChainColumns}, 5, 8,
                at::make_generator<at::CPUGeneratorImpl>(
                    static_cast<uint64_t>(1000 + round)))
      .to(device)
      .requires_grad_(gradients);
}

absl::Span<const Chain> Chains() { return kChains; }

}  // namespace djinn::bench
