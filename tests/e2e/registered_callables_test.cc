// Tests djinn::CompiledFunction with functions whose captured graph replaces
// their calls.
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
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

TEST_F(RegisteredCallablesTest, TrainingStepIsReplayedWhole) {
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

TEST_F(RegisteredCallablesTest, FunctionsThatCannotBeReplayedAreCalled) {
  const auto refusal = [](CompiledFunction::Function function) {
    CompiledFunction compiled(std::move(function));
    for (int i = 0; i < 4; ++i) compiled({Remote({4})});
    EXPECT_EQ(compiled.statistics().replays, 0u);
    return compiled.statistics().refusal;
  };
  EXPECT_EQ(refusal([](const Tensors& in) {
              return Tensors{in[0] * in[0].sum().item<float>()};
            }),
            "it reads a value from the device: aten::item");
  EXPECT_EQ(refusal([](const Tensors& in) { return Tensors{in[0].nonzero()}; }),
            "the shape of a result depends on data: aten::nonzero");
  const at::Tensor unknown = Remote({4});
  EXPECT_EQ(
      refusal([&](const Tensors& in) { return Tensors{in[0] + unknown}; }),
      "it uses a tensor or a generator that is neither an argument nor one of "
      "its parameters: aten::add.Tensor");
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

TEST_F(RegisteredCallablesTest, EffectWithoutAnOperatorIsRefused) {
  const auto refusal = [](const CompiledFunction::Function& function) {
    CompiledFunction compiled(function);
    for (int i = 0; i < 4; ++i) compiled({Remote({3})});
    EXPECT_EQ(compiled.statistics().replays, 0);
    return compiled.statistics().refusal;
  };
  const auto twice = [](const Tensors& in) { return Tensors{in[0] * 2}; };
  EXPECT_EQ(refusal([&](const Tensors& in) {
              torch::manual_seed(3);
              return twice(in);
            }),
            "it seeds a generator, or sets its state");
  EXPECT_EQ(refusal([&](const Tensors& in) {
              in[0].set_data(in[0] + 1);
              return twice(in);
            }),
            "it gives an argument other memory");
  EXPECT_EQ(refusal([&](const Tensors& in) {
              in[0].mutable_grad() = in[0] + 1;
              return twice(in);
            }),
            "it gives an argument another gradient");
  const c10::NoGradGuard no_grad;
  CompiledFunction hooks([&](const Tensors& in) {
    in[0].register_hook([](const at::Tensor& gradient) { return gradient; });
    return twice(in);
  });
  for (int i = 0; i < 4; ++i) hooks({Remote({3}).requires_grad_()});
  EXPECT_EQ(hooks.statistics().replays, 0);
  EXPECT_EQ(hooks.statistics().refusal, "it gives an argument hooks");
}

// Another thread may draw meanwhile. The next call may be undisturbed.
TEST_F(RegisteredCallablesTest, DrawsOfThisProcessGiveNothingUp) {
  bool draws = true;
  CompiledFunction compiled([&](const Tensors& in) {
    if (draws) std::thread([] { torch::rand({2}); }).join();
    return Tensors{in[0] * 2};
  });
  for (int i = 0; i < 8; ++i) compiled({Remote({3})});
  EXPECT_EQ(compiled.statistics().replays, 0);
  EXPECT_NE(compiled.statistics().refusal.find("another thread"),
            std::string::npos);
  draws = false;
  for (int i = 0; i < 3; ++i) compiled({Remote({3})});
  EXPECT_EQ(compiled.statistics().replays, 1);
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

// The module scopes around a refused call tell where it was made.
TEST_F(RegisteredCallablesTest, ARefusalSaysWhichOperatorAndWhere) {
  const auto refusal = [](CompiledFunction::Function function) {
    CompiledFunction compiled(std::move(function));
    for (int i = 0; i < 2; ++i) compiled({Remote({4})});
    return compiled.statistics().refusal;
  };
  EXPECT_EQ(refusal([](const Tensors& in) {
              const ModuleScope outer("net");
              at::Tensor scaled = in[0] * 2;
              const ModuleScope inner("gate");
              return Tensors{scaled * in[0].sum().item<float>()};
            }),
            "it reads a value from the device: aten::item, in module net.gate");
  EXPECT_EQ(refusal([](const Tensors& in) {
              const ModuleScope scope("net");
              return Tensors{in[0].nonzero()};
            }),
            "the shape of a result depends on data: aten::nonzero, in module "
            "net");
  EXPECT_EQ(refusal([](const Tensors& in) {
              const ModuleScope scope("net");
              return Tensors{in[0] + at::arange(4).to(in[0].device())};
            }),
            "it sends a tensor of this process: aten::to.dtype_layout, in "
            "module net");
  EXPECT_EQ(refusal([](const Tensors& in) {
              const ModuleScope scope("net");
              at::Tensor grown = in[0] * 1;
              grown.resize_({9});
              return Tensors{grown.zero_()};
            }),
            "it resizes a tensor: aten::resize_, in module net");
  at::Tensor here = torch::zeros({1});
  EXPECT_EQ(refusal([&](const Tensors& in) {
              const ModuleScope scope("net");
              here.add_(1);
              return Tensors{in[0] + 1};
            }),
            "aten::add_.Scalar writes a tensor of this process, in module net");
  SetCallSites(true);
  at::Tensor kept;
  EXPECT_EQ(refusal([&](const Tensors& in) {
              const ModuleScope scope("net");
              kept = in[0] + 1;
              return Tensors{in[0] * 2};
            }),
            "a tensor that aten::add.Scalar made is still there afterwards, "
            "and was not returned, in module net");
  const at::Tensor unknown = Remote({4});
  EXPECT_EQ(
      refusal([&](const Tensors& in) {
        const ModuleScope scope("net");
        return Tensors{in[0] + unknown};
      }),
      "it uses a tensor or a generator that is neither an argument nor one of "
      "its parameters: aten::add.Tensor, in module net");
  SetCallSites(false);
}

TEST_F(RegisteredCallablesTest, WarmingUpCallsUntilTheFunctionNeedNotRun) {
  Trainer local(at::kCPU), remote(Device());
  int runs = 0;
  CompiledFunction step(
      [&](const Tensors& in) {
        ++runs;
        return Tensors{remote.Step(in[0], in[1])};
      },
      {.modules = {remote.network.ptr()}});
  const at::Tensor inputs = torch::randn({4, 6});
  const at::Tensor labels = torch::randint(3, {4}, torch::kLong);
  const Tensors given = {inputs.to(Device()), labels.to(Device())};
  ASSERT_EQ(step.WarmUp(given), absl::OkStatus());
  const int warm = runs;
  // Every call was executed once, also those that the function did not see.
  for (int i = 0; i <= warm; ++i) local.Step(inputs, labels);
  EXPECT_TRUE(torch::equal(step(given)[0].cpu(), local.Step(inputs, labels)));
  EXPECT_EQ(runs, warm);

  step.Forget();
  EXPECT_TRUE(torch::equal(step(given)[0].cpu(), local.Step(inputs, labels)));
  EXPECT_EQ(runs, warm + 1);
  ASSERT_EQ(step.WarmUp(given), absl::OkStatus());
  EXPECT_EQ(runs, warm + 2);
}

TEST_F(RegisteredCallablesTest, WarmingUpSaysWhyItIsOfNoUse) {
  int runs = 0;
  CompiledFunction reads([&](const Tensors& in) {
    ++runs;
    return Tensors{in[0] * in[0].sum().item<float>()};
  });
  const absl::Status refused = reads.WarmUp({Remote({4})});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), "it reads a value from the device: aten::item");
  EXPECT_LE(runs, CompiledFunction::kMaxWarmUpCalls);
  // The function is captured again after its state was forgotten.
  const uint64_t captures = reads.statistics().captures;
  reads({Remote({4})});
  EXPECT_EQ(reads.statistics().captures, captures);
  reads.Forget();
  EXPECT_EQ(reads.statistics().refusal, "");
  reads({Remote({4})});
  EXPECT_EQ(reads.statistics().captures, captures + 1);
}

// in[0] += in[1], and their product.
Tensors AddAndMultiply(const Tensors& in) {
  in[0].add_(in[1]);
  return {in[0] * in[1]};
}

TEST_F(RegisteredCallablesTest, ArgumentsThatAreNotAlikeAreAnotherCall) {
  CompiledFunction function(&AddAndMultiply);
  const auto check = [&](const char* what, auto make) {
    for (int i = 0; i < 4; ++i) {
      torch::manual_seed(i);
      const Tensors here = make(at::kCPU);
      torch::manual_seed(i);
      const Tensors there = make(Device());
      const uint64_t replays = function.statistics().replays;
      const at::Tensor result = function(there)[0].cpu();
      EXPECT_TRUE(torch::equal(result, AddAndMultiply(here)[0])) << what << i;
      for (size_t k = 0; k < here.size(); ++k) {
        EXPECT_TRUE(torch::equal(there[k].cpu(), here[k])) << what << i;
      }
      EXPECT_TRUE(i < 3 || function.statistics().replays > replays) << what;
    }
  };
  const auto random = [](at::IntArrayRef sizes, const at::Device& device,
                         at::ScalarType type = at::kFloat) {
    return torch::randn(sizes).to(type).to(device);
  };
  check("two tensors", [&](const at::Device& device) {
    return Tensors{random({4, 4}, device), random({4, 4}, device)};
  });
  check("one tensor twice", [&](const at::Device& device) {
    const at::Tensor x = random({4, 4}, device);
    return Tensors{x, x};
  });
  check("two in one memory", [&](const at::Device& device) {
    const at::Tensor x = random({4, 4}, device);
    return Tensors{x, x.t().contiguous().t()};
  });
  check("a view of the other", [&](const at::Device& device) {
    const at::Tensor x = random({4, 4}, device);
    return Tensors{x.slice(0, 2, 4), x.slice(0, 0, 2)};
  });
  check("the same the other way round", [&](const at::Device& device) {
    const at::Tensor x = random({4, 4}, device);
    return Tensors{x.slice(0, 0, 2), x.slice(0, 2, 4)};
  });
  check("transposed", [&](const at::Device& device) {
    return Tensors{random({4, 4}, device).t(), random({4, 4}, device)};
  });
  check("another offset", [&](const at::Device& device) {
    return Tensors{random({5, 4}, device).slice(0, 1, 5),
                   random({4, 4}, device)};
  });
  check("another dtype", [&](const at::Device& device) {
    return Tensors{random({4, 4}, device, at::kDouble), random({4, 4}, device)};
  });
  check("that is broadcast", [&](const at::Device& device) {
    return Tensors{random({4, 4}, device), random({4}, device)};
  });
  check("two tensors again", [&](const at::Device& device) {
    return Tensors{random({4, 4}, device), random({4, 4}, device)};
  });
}

TEST_F(RegisteredCallablesTest, ResultsAreOfTheModeThatTheyWereMadeIn) {
  const auto check = [](bool outside, bool inside) {
    CompiledFunction function([&](const Tensors& in) {
      const c10::InferenceMode mode(inside);
      return Tensors{in[0] + 1};
    });
    const c10::InferenceMode mode(outside);
    for (int i = 0; i < 4; ++i) {
      const at::Tensor x = Remote({3});
      const at::Tensor result = function({x})[0];
      EXPECT_EQ(result.is_inference(), inside) << i;
      EXPECT_TRUE(torch::equal(result.cpu(), x.cpu() + 1)) << i;
    }
    EXPECT_EQ(function.statistics().replays, 2u);
  };
  for (const bool outside : {false, true}) {
    for (const bool inside : {false, true}) check(outside, inside);
  }
}

// An inference tensor that may nevertheless be written in place.
TEST_F(RegisteredCallablesTest, AResultThatWasDetachedIsSoWhenReplayed) {
  CompiledFunction function([](const Tensors& in) {
    at::Tensor sum;
    {
      const c10::InferenceMode inference;
      sum = in[0] + 1;
    }
    return Tensors{sum.detach()};
  });
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = Remote({3});
    const at::Tensor result = function({x})[0];
    EXPECT_TRUE(result.is_inference());
    EXPECT_EQ(result._version(), 0);
    result.add_(1);
    EXPECT_EQ(result._version(), 1);
    EXPECT_TRUE(torch::equal(result.cpu(), x.cpu() + 1 + 1)) << i;
  }
  EXPECT_EQ(function.statistics().replays, 2u);
}

// The memory of earlier arguments may be freed. Other tensors may then get it,
// in this process and on the worker.
TEST_F(RegisteredCallablesTest, ArgumentsMayBeWhereFreedOnesWere) {
  CompiledFunction function(&AddAndMultiply);
  const at::Tensor stays = torch::randn({64});
  const at::Tensor stays_there = stays.to(Device());
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = torch::randn({64});
    at::Tensor there = x.to(Device());
    const at::Tensor result = function({there, stays_there})[0];
    there.reset();
    // Gets the memory of the freed tensors.
    const at::Tensor other = torch::full({64}, i).to(Device());
    EXPECT_TRUE(torch::equal(result.cpu(), (x + stays) * stays)) << i;
    EXPECT_TRUE(torch::equal(stays_there.cpu(), stays)) << i;
  }
  EXPECT_EQ(function.statistics().replays, 38u);
}

// Returns the gradient of the weight that all layers of a chain share. One
// thread makes the first layers. Another thread, which has executed a training
// step of its own, adds the last layer.
at::Tensor GradientOfAChainOfTwoThreads(
    const at::Device& device, const CompiledFunction::Function& step) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({5, 32}).to(device);
  const at::Tensor weight =
      torch::randn({32, 32}).to(device).requires_grad_(true);
  at::Tensor chain = torch::randn({5, 32}).to(device);
  const auto add_layer = [&] { chain = chain.mm(weight.t()).tanh(); };
  std::thread([&] {
    // The thread may otherwise use more threads for its products.
    at::init_num_threads();
    for (int i = 0; i < 6; ++i) add_layer();
  }).join();
  std::thread([&] {
    at::init_num_threads();
    for (int i = 0; i < 16; ++i) step({x});
    add_layer();
  }).join();
  chain.backward(torch::ones_like(chain));
  return weight.grad().cpu();
}

// A backward pass processes nodes in the order of the numbers that autograd
// counts in each thread. It adds gradients in this order.
TEST_F(RegisteredCallablesTest, AutogradGoesOnCountingAsAfterACall) {
  const absl::Cleanup reset = [threads = at::get_num_threads()] {
    at::set_num_threads(threads);
  };
  at::set_num_threads(1);  // as many as the worker has
  const auto step_of = [](at::Tensor weight) {
    return [weight = std::move(weight)](const Tensors& in) {
      const at::Tensor loss = in[0].mm(weight).sum();
      loss.backward();
      return Tensors{loss.detach()};
    };
  };
  const at::Tensor here = torch::randn({32, 32});
  const at::Tensor there = here.to(Device()).requires_grad_(true);
  CompiledFunction step(step_of(there), {.parameters = {there}});
  const at::Tensor local = GradientOfAChainOfTwoThreads(
      at::kCPU, step_of(here.clone().requires_grad_(true)));
  const at::Tensor remote = GradientOfAChainOfTwoThreads(
      Device(), [&](const Tensors& in) { return step(in); });
  EXPECT_GE(step.statistics().replays, 12u);
  EXPECT_TRUE(torch::equal(remote, local));
  // The gradient would differ if the second thread had counted less.
  EXPECT_FALSE(torch::equal(
      local, GradientOfAChainOfTwoThreads(
                 at::kCPU, [](const Tensors&) { return Tensors(); })));
}

TEST_F(RegisteredCallablesTest, CallsUsedLeastRecentlyAreForgotten) {
  RegisteredCallable callable;
  const at::Tensor x = torch::ones({4}).to(Device());
  // Returns the sum, and whether the function was called again.
  const auto call = [&](int64_t number) {
    const std::string key = std::to_string(number);
    auto again = callable.Replay(key, {x}, {});
    if (again.has_value()) return std::pair(again->outputs[0], true);
    EXPECT_TRUE(callable.Begin(key, {x}, {})) << number;
    const at::Tensor sum = x + number;
    EXPECT_NE(callable.End({sum}), 0u) << number;
    return std::pair(sum, false);
  };
  constexpr int64_t kCalls = RegisteredCallable::kMaxCapturedGraphs + 8;
  for (int64_t number = 0; number < kCalls; ++number) {
    EXPECT_FALSE(call(number).second);
    EXPECT_FALSE(call(number).second);
    EXPECT_TRUE(call(number).second) << number;
  }
  EXPECT_EQ(callable.CapturedGraphs().size(),
            RegisteredCallable::kMaxCapturedGraphs);
  EXPECT_TRUE(call(kCalls - 1).second);
  EXPECT_TRUE(call(8).second);
  const auto [sum, again] = call(7);
  EXPECT_FALSE(again);
  EXPECT_TRUE(torch::equal(sum.cpu(), torch::full({4}, 8.0f)));
}

}  // namespace
}  // namespace djinn
