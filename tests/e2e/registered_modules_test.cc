// Tests djinn::CompiledFunction with modules whose captured graph replaces
// their forward().
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
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

struct NetImpl : torch::nn::Module {
  NetImpl() {
    scale = register_parameter("scale", torch::rand({8}));
    shift = register_buffer("shift", torch::rand({8}));
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor hidden =
        drop->forward(norm->forward(first->forward(input))) * scale + shift;
    return second->forward(hidden.relu());
  }
  // Replaces a parameter by another tensor, as a class may do.
  void ReplaceScale(const at::Tensor& other) {
    scale = parameters_["scale"] = other;
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::BatchNorm1d norm =
      register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.4));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
  at::Tensor scale, shift;
};
TORCH_MODULE(Net);

// Compares a module on the CPU with the same module on the device, whose
// forward() is registered. Every change is made to both modules, and their
// results must stay equal.
class ModulesTest : public SessionTest {
 protected:
  static constexpr int kSettled = 4;

  void SetUp() override {
    SessionTest::SetUp();
    threads_ = at::get_num_threads();
    at::set_num_threads(1);
    torch::manual_seed(4);
    local_ = Net();
    torch::manual_seed(4);
    remote_ = Net();
    remote_->to(Device());
    compiled_.emplace(
        [this](const Tensors& in) { return Tensors{remote_->forward(in[0])}; },
        CompileOptions{.modules = {remote_.ptr()}});
  }
  void TearDown() override {
    compiled_.reset();
    remote_ = nullptr;
    at::set_num_threads(threads_);
    SessionTest::TearDown();
  }

  // Returns whether the call was executed as a whole.
  bool Check(const std::string& when) {
    const at::Tensor input = torch::randn({4, 6}, local_->scale.dtype());
    const uint64_t replays = compiled_->statistics().replays;
    ++seed_;
    Seed(Device());
    const at::Tensor result = (*compiled_)({input.to(Device())})[0].cpu();
    Seed(at::kCPU);
    EXPECT_TRUE(torch::equal(result, local_->forward(input))) << when;
    return compiled_->statistics().replays > replays;
  }
  void Settle(const std::string& when) {
    for (int i = 1; i < kSettled; ++i) Check(when);
    EXPECT_TRUE(Check(when)) << when << ": " << compiled_->statistics().refusal;
  }
  // Applies the change to both nets, with the same random numbers.
  void Change(const std::string& what,
              const std::function<void(NetImpl&)>& change) {
    Settle("before: " + what);
    for (Net net : {local_, remote_}) {
      torch::manual_seed(7);
      change(*net);
    }
    Settle(what);
  }
  // The first draw after a seed is not a call that can be repeated.
  void Seed(const at::Device& device) {
    at::manual_seed(seed_);
    torch::rand({1}, device);
  }
  static at::Tensor Like(const at::Tensor& other) {
    return torch::randn(other.sizes()).to(other.options());
  }

  const torch::NoGradGuard no_grad_;
  Net local_ = nullptr, remote_ = nullptr;
  std::optional<CompiledFunction> compiled_;
  uint64_t seed_ = 10;
  int threads_ = 1;
};

TEST_F(ModulesTest, TrainingModeIsPartOfTheCall) {
  Change("all in eval", [](NetImpl& net) { net.eval(); });
  Change("all in train", [](NetImpl& net) { net.train(); });
  Change("one in eval", [](NetImpl& net) { net.drop->eval(); });
  Change("another, too", [](NetImpl& net) { net.norm->eval(); });
  Change("the first back", [](NetImpl& net) { net.drop->train(); });
  // Each mode was captured twice, and is found again after that.
  const uint64_t captures = compiled_->statistics().captures;
  for (const bool train : {true, false, true, false}) {
    local_->train(train);
    remote_->train(train);
    EXPECT_TRUE(Check("seen before"));
  }
  EXPECT_EQ(compiled_->statistics().captures, captures);
}

TEST_F(ModulesTest, WeightsThatChangeAreUsed) {
  Change("written in place",
         [](NetImpl& net) { net.first->weight.mul_(-1.5); });
  Change("filled by a copy",
         [](NetImpl& net) { net.second->bias.copy_(Like(net.second->bias)); });
  Change("set_data", [](NetImpl& net) {
    net.first->weight.set_data(Like(net.first->weight));
  });
  Change("set_data of another stride", [](NetImpl& net) {
    net.second->weight.set_data(Like(net.second->weight.t()).t());
  });
  Change("another storage",
         [](NetImpl& net) { net.first->bias.set_(Like(net.first->bias)); });
  Change("memory swapped", [](NetImpl& net) {
    const at::Tensor mean = net.norm->running_mean.detach();
    net.norm->running_mean.set_data(net.norm->running_var);
    net.norm->running_var.set_data(mean.abs());
  });
  Change("another tensor as a layer's member",
         [](NetImpl& net) { net.first->weight = Like(net.first->weight); });
  Change("the registered one again", [](NetImpl& net) {
    net.first->weight = net.first->named_parameters()["weight"];
  });
  Change("another tensor as a parameter",
         [](NetImpl& net) { net.ReplaceScale(Like(net.scale)); });
  Change("without a bias",
         [](NetImpl& net) { net.second->bias = at::Tensor(); });
  Change("as a parameter that needs a gradient",
         [](NetImpl& net) { net.first->weight.requires_grad_(true); });
  Change("frozen", [](NetImpl& net) {
    for (at::Tensor& tensor : net.parameters()) tensor.requires_grad_(false);
  });
  Change("of another dtype", [](NetImpl& net) { net.to(at::kDouble); });
}

TEST_F(ModulesTest, BuffersThatChangeAreUsed) {
  local_->eval();
  remote_->eval();
  Change("written in place", [](NetImpl& net) { net.shift.add_(1); });
  Change("set_data", [](NetImpl& net) { net.shift.set_data(Like(net.shift)); });
  Change("another tensor as a layer's member", [](NetImpl& net) {
    net.norm->running_mean = Like(net.norm->running_mean);
  });
  Change("one tensor as two members",
         [](NetImpl& net) { net.norm->bias = net.norm->weight; });
}

TEST_F(ModulesTest, SubmodulesThatAreReplacedAreAnotherCall) {
  Change("another layer", [](NetImpl& net) {
    torch::nn::Linear other(6, 8);
    other->to(net.scale.device());
    net.first = net.replace_module("first", other);
  });
  // The new module has no tensors and may get the address of the last one.
  for (int i = 1; i < 9; ++i) {
    Change("another probability", [i](NetImpl& net) {
      net.drop = nullptr;
      net.drop = net.replace_module("drop", torch::nn::Dropout(0.1 * i));
    });
  }
}

TEST_F(ModulesTest, ModesOfTheThreadAreAnotherCall) {
  Settle("no gradients");
  {
    const torch::AutoGradMode on(true);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(Check("with gradients"));
    EXPECT_EQ(compiled_->statistics().refusal,
              "it returns a tensor that autograd may still need (return it "
              "detached, or call under no_grad)");
  }
  EXPECT_TRUE(Check("no gradients again"));
  local_->eval();
  remote_->eval();
  {
    const c10::InferenceMode inference;
    Settle("inference");
  }
  Settle("in eval mode");
}

TEST_F(ModulesTest, FunctionThatChangesItsModulesIsCalled) {
  CompiledFunction toggles(
      [this](const Tensors& in) {
        remote_->eval();
        return Tensors{remote_->forward(in[0])};
      },
      {.modules = {remote_.ptr()}});
  CompiledFunction replaces(
      [this](const Tensors& in) {
        remote_->ReplaceScale(remote_->scale * 2);
        return Tensors{in[0] * 2};
      },
      {.modules = {remote_.ptr()}});
  for (int i = 0; i < 6; ++i) {
    remote_->train();
    toggles({Remote({4, 6})});
    EXPECT_FALSE(remote_->is_training());
    replaces({Remote({4, 6})});
  }
  EXPECT_EQ(toggles.statistics().replays, 0u);
  EXPECT_EQ(toggles.statistics().refusal,
            "it changes its modules, or the result of its key");
  EXPECT_EQ(replaces.statistics().replays, 0u);
  EXPECT_EQ(replaces.statistics().refusal, "it replaces a tensor that it uses");
}

TEST_F(ModulesTest, ReplacedReadParametersAreUsed) {
  at::Tensor weight = Remote({3, 3});
  CompiledFunction product(
      [&](const Tensors& in) { return Tensors{in[0].mm(weight)}; },
      {.read_parameters = [&] { return Tensors{weight}; }});
  for (int i = 0; i < 3; ++i) {
    for (int call = 0; call < kSettled; ++call) {
      const at::Tensor x = Remote({2, 3});
      EXPECT_TRUE(
          torch::equal(product({x})[0].cpu(), x.cpu().mm(weight.cpu())));
    }
    weight = Remote({3, 3});
  }
  EXPECT_EQ(product.statistics().replays, 6u);
}

TEST_F(ModulesTest, AModuleAloneIsRegisteredByItsForward) {
  CompiledFunction forward = Compile(remote_);
  // From the second call on, a value that was passed in both calls is treated
  // as one that may change.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(forward.WarmUp({Remote({4, 6})}), absl::OkStatus());
  }
  EXPECT_EQ(forward.statistics().replays, 2u);
  EXPECT_EQ(forward({Remote({4, 6})})[0].sizes(), at::IntArrayRef({4, 3}));
  EXPECT_EQ(forward.statistics().replays, 3u);
  EXPECT_THROW(forward({Remote({4, 6}), Remote({4, 6})}), c10::Error);

  torch::nn::Sequential sequence(torch::nn::Linear(3, 4), torch::nn::Tanh());
  sequence->to(Device());
  CompiledFunction layers = RegisterModel("two-layers", sequence);
  EXPECT_EQ(layers.WarmUp({Remote({2, 3})}), absl::OkStatus());
  const at::Tensor x = Remote({2, 3});
  EXPECT_TRUE(torch::equal(layers({x})[0].cpu(), sequence->forward(x).cpu()));

  torch::nn::LSTM network(3, 5);
  network->to(Device());
  CompiledFunction recurrent = Compile(network);
  EXPECT_EQ(recurrent.WarmUp({Remote({7, 2, 3})}), absl::OkStatus());
  EXPECT_EQ(recurrent({Remote({7, 2, 3})}).size(), 3u);
  EXPECT_THROW(Compile(Net(nullptr)), c10::Error);
}

}  // namespace
}  // namespace djinn
