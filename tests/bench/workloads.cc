#include "tests/bench/workloads.h"

#include <optional>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/Generator.h"
#include "ATen/ops/add.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/eye.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/layer_norm.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/mul.h"
#include "ATen/ops/outer.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/reciprocal.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/sign.h"
#include "ATen/ops/zeros.h"
#include "c10/core/InferenceMode.h"
#include "djinn/compile.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/sgd.h"
#include "torch/utils.h"

namespace djinn::bench {
namespace {

constexpr int kOperandsOfAKind = 4;

// Calls `step(x, i)` repeatedly. This function is inlined, so that every chain
// is the loop that a program would write.
template <typename Step>
at::Tensor Repeat(at::Tensor x, const ChainOperands& operands, Step step) {
  const c10::InferenceMode inference(!operands.gradients);
  for (int64_t i = 0; i < kChainSteps; ++i) x = step(x, i);
  return x;
}

// Returns the operand whose turn it is.
const at::Tensor& Turn(const std::vector<at::Tensor>& operands, int64_t i) {
  return operands[static_cast<size_t>(i) % kOperandsOfAKind];
}

// Returns a factor that differs at every step and in every round. Its sign
// alternates so that sums stay small.
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

// Returns values that are uniform in [low, high).
at::Tensor Random(at::IntArrayRef sizes, double low, double high,
                  at::Generator generator) {
  return at::rand(sizes, generator, at::kFloat) * (high - low) + low;
}

// Returns a matrix that mirrors vectors. It is orthogonal, so that products
// neither grow nor shrink.
at::Tensor RandomMirror(int64_t size, const at::Generator& generator) {
  const at::Tensor normal = Random({size}, -1, 1, generator);
  return at::eye(size, at::kFloat) -
         at::outer(normal, normal) * (2 / normal.square().sum());
}

class Network : public torch::nn::Module {
 public:
  Network() {
    hidden_ =
        register_module("hidden", torch::nn::Linear(kMlpInputs, kMlpHidden));
    output_ =
        register_module("output", torch::nn::Linear(kMlpHidden, kMlpClasses));
  }

  at::Tensor forward(const at::Tensor& inputs) {
    return output_(at::relu(hidden_(inputs)));
  }

 private:
  torch::nn::Linear hidden_ = nullptr;
  torch::nn::Linear output_ = nullptr;
};

// Builds the network on the CPU, whose random numbers the weights are.
std::shared_ptr<Network> MakeNetwork(const at::Device& device) {
  torch::manual_seed(5);
  auto network = std::make_shared<Network>();
  network->to(device);
  return network;
}

}  // namespace

at::Tensor RandomNormal(at::IntArrayRef sizes, double deviation,
                        uint64_t seed) {
  const at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::kFloat).mul_(deviation);
}

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
  // In this range gelu() changes a value little. Elsewhere, ten thousand gelu()
  // calls would make the values zero.
  return Random({kChainRows, kChainColumns}, 5, 8,
                at::make_generator<at::CPUGeneratorImpl>(
                    static_cast<uint64_t>(1000 + round)))
      .to(device)
      .requires_grad_(gradients);
}

absl::Span<const Chain> Chains() { return kChains; }

class Mlp::Impl {
 public:
  Impl(const at::Device& device, bool registered)
      : device_(device),
        network_(MakeNetwork(device)),
        optimizer_(network_->parameters(), torch::optim::SGDOptions(0.05)) {
    if (!registered) return;
    registered_.emplace(
        [this](const std::vector<at::Tensor>& examples) {
          return std::vector<at::Tensor>{Train(examples[0], examples[1])};
        },
        CompileOptions{.parameters = network_->parameters()});
  }

  float Step(const at::Tensor& inputs, const at::Tensor& labels) {
    if (registered_.has_value()) {
      return (*registered_)({inputs.to(device_), labels.to(device_)})[0]
          .item<float>();
    }
    return Train(inputs.to(device_), labels.to(device_)).item<float>();
  }

 private:
  at::Tensor Train(const at::Tensor& inputs, const at::Tensor& labels) {
    optimizer_.zero_grad();
    const at::Tensor loss =
        at::cross_entropy_loss(network_->forward(inputs), labels);
    loss.backward();
    optimizer_.step();
    return loss.detach();
  }

  const at::Device device_;
  const std::shared_ptr<Network> network_;
  torch::optim::SGD optimizer_;
  std::optional<CompiledFunction> registered_;
};

Mlp::Mlp(const at::Device& device, bool registered)
    : impl_(std::make_unique<Impl>(device, registered)) {}

Mlp::~Mlp() = default;

float Mlp::Step(const at::Tensor& inputs, const at::Tensor& labels) {
  return impl_->Step(inputs, labels);
}

}  // namespace djinn::bench
