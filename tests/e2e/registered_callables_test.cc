// djinn::CompiledFunction: functions whose calls are carried out without them.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "djinn/djinn.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster_environment.h"
#include "torch/torch.h"

namespace djinn {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor Remote(std::vector<int64_t> sizes) {
  return torch::randn(sizes).to(Device());
}

[[maybe_unused]] ClusterEnvironment* const environment =
    ClusterEnvironment::Get();

using RegisteredCallablesTest = SessionTest;

struct Trainer {
  explicit Trainer(const at::Device& device) {
    torch::manual_seed(2);
    network = torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::ReLU(),
                                    torch::nn::Linear(8, 3));
    network->to(device);
    optimizer = std::make_unique<torch::optim::SGD>(
        network->parameters(), torch::optim::SGDOptions(0.1));
  }
  at::Tensor Step(const at::Tensor& inputs, const at::Tensor& labels) {
    optimizer->zero_grad();
    const at::Tensor loss =
        at::cross_entropy_loss(network->forward(inputs), labels);
    loss.backward();
    optimizer->step();
    return loss.detach();
  }
  torch::nn::Sequential network = nullptr;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

TEST_F(RegisteredCallablesTest, ATrainingStepIsCarriedOutAsAWhole) {
  Trainer local(at::kCPU), remote(Device());
  int runs = 0;
  CompiledFunction step(
      [&](const Tensors& in) {
        ++runs;
        return Tensors{remote.Step(in[0], in[1])};
      },
      {.parameters = remote.network->parameters()});
  for (int i = 0; i < 20; ++i) {
    const at::Tensor inputs = torch::randn({4, 6});
    const at::Tensor labels = torch::randint(3, {4}, torch::kLong);
    const at::Tensor loss = step({inputs.to(Device()), labels.to(Device())})[0];
    EXPECT_TRUE(torch::equal(loss.cpu(), local.Step(inputs, labels))) << i;
  }
  EXPECT_LE(runs, 4);
  EXPECT_EQ(step.statistics().replays, 20u - runs);
  EXPECT_EQ(step.statistics().refusal, "");
  const auto ours = remote.network->parameters();
  const auto theirs = local.network->parameters();
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(torch::equal(ours[i].cpu(), theirs[i]));
    EXPECT_TRUE(torch::equal(ours[i].grad().cpu(), theirs[i].grad()));
  }
}

TEST_F(RegisteredCallablesTest, TheKeyTellsOfWhatCannotBeSeen) {
  double rate = 1.0;
  CompiledFunction scale(
      [&](const Tensors& in) { return Tensors{in[0] * rate}; },
      {.key = [&] { return std::to_string(rate); }});
  for (const double next : {1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 3.0}) {
    rate = next;
    const at::Tensor x = Remote({3});
    EXPECT_TRUE(torch::equal(scale({x})[0].cpu(), x.cpu() * rate));
  }
  EXPECT_EQ(scale.statistics().replays, 3u);
}

TEST_F(RegisteredCallablesTest, WhatCannotBeRepeatedIsCalledAsEver) {
  const auto refusal = [](CompiledFunction::Function function) {
    CompiledFunction compiled(std::move(function));
    for (int i = 0; i < 4; ++i) compiled({Remote({4})});
    EXPECT_EQ(compiled.statistics().replays, 0u);
    return compiled.statistics().refusal;
  };
  EXPECT_EQ(refusal([](const Tensors& in) {
              return Tensors{in[0] * in[0].sum().item<float>()};
            }),
            "it reads a value from the device");
  EXPECT_EQ(refusal([](const Tensors& in) { return Tensors{in[0].nonzero()}; }),
            "the shape of a result depends on data: aten::nonzero");
  const at::Tensor unknown = Remote({4});
  EXPECT_EQ(
      refusal([&](const Tensors& in) { return Tensors{in[0] + unknown}; }),
      "it uses a tensor, or a generator, that is neither an argument nor "
      "found in what it refers to");
  at::Tensor here = torch::zeros({1});
  EXPECT_EQ(refusal([&](const Tensors& in) {
              here.add_(1);
              return Tensors{in[0] + 1};
            }),
            "aten::add_.Scalar writes a tensor of this process");
  at::Tensor kept;
  EXPECT_EQ(
      refusal([&](const Tensors& in) {
        kept = in[0] + 1;
        return Tensors{in[0] * 2};
      }),
      "a tensor that aten::add.Scalar made is still there afterwards, and "
      "was not returned");
}

TEST_F(RegisteredCallablesTest, AClosedSessionIsNoneToGoOnIn) {
  const at::Tensor weight = Remote({3, 3});
  CompiledFunction product(
      [&](const Tensors& in) { return Tensors{in[0].mm(weight)}; },
      {.parameters = {weight}});
  for (int i = 0; i < 4; ++i) product({Remote({2, 3})});
  EXPECT_EQ(product.statistics().replays, 2u);
  const at::Tensor x = Remote({2, 3});
  ASSERT_TRUE(Close().ok());
  EXPECT_THROW(product({x}), Error);
}

}  // namespace
}  // namespace djinn
