#include "tests/bench/mlp.h"

#include <optional>
#include <vector>

#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/relu.h"
#include "djinn/compile.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/sgd.h"
#include "torch/utils.h"

namespace djinn::bench {
namespace {

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

// Made on the CPU, whose random numbers the weights are.
std::shared_ptr<Network> MakeNetwork(const at::Device& device) {
  torch::manual_seed(5);
  auto network = std::make_shared<Network>();
  network->to(device);
  return network;
}

}  // namespace

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
