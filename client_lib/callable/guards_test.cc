// Tests, without a worker, which differences between calls of a registered
// callable change the guard, and which side effects prevent registration.
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/callable/call_guard.h"
#include "client_lib/callable/module_watch.h"
#include "client_lib/callable/side_effects.h"
#include "client_lib/capture/device/lane.h"
#include "client_lib/capture/testing/capture_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using Tensors = std::vector<at::Tensor>;

using CallGuardTest = CaptureTest;

TEST_F(CallGuardTest, OtherStoragesOfTheSameMetadataHaveTheSameGuard) {
  EXPECT_EQ(CallGuard("key", {Remote({2, 3})}, {}),
            CallGuard("key", {Remote({2, 3})}, {}));
}

TEST_F(CallGuardTest, KeyMetadataAndModesAreParts) {
  const at::Tensor x = Remote({3, 3});
  const std::string guard = CallGuard("key", {x}, {});
  EXPECT_NE(guard, CallGuard("other", {x}, {}));
  EXPECT_NE(guard, CallGuard("key", {Remote({3, 4})}, {}));
  EXPECT_NE(guard, CallGuard("key", {x.t()}, {}));
  EXPECT_NE(guard, CallGuard("key", {Remote({3, 3}).requires_grad_()}, {}));
  EXPECT_NE(guard, CallGuard("key", {x.to(at::kDouble)}, {}));
  EXPECT_NE(guard, CallGuard("key", {x, x}, {}));
  const at::NoGradGuard no_grad;
  EXPECT_NE(guard, CallGuard("key", {x}, {}));
}

TEST_F(CallGuardTest, FirstCallOfThreadHasGuardOfLaterCalls) {
  const at::Tensor x = Remote({3});
  std::string first, later;
  std::thread([&] {
    first = CallGuard("", {x}, {});
    CurrentLane();
    later = CallGuard("", {x}, {});
  }).join();
  EXPECT_EQ(first, later);
}

TEST_F(CallGuardTest, SharedMemoryAndSharedTensorsAreParts) {
  const at::Tensor x = Remote({3}), y = Remote({3});
  const std::string distinct = CallGuard("", {x, y}, {});
  const std::string same = CallGuard("", {x, x}, {});
  const std::string alias = CallGuard("", {x, x.detach()}, {});
  EXPECT_NE(distinct, same);
  EXPECT_NE(distinct, alias);
  EXPECT_NE(same, alias);
}

TEST_F(CallGuardTest, ParametersCountByIdentity) {
  const at::Tensor x = Remote({3}), p = Remote({3}), q = Remote({3});
  EXPECT_EQ(CallGuard("", {x}, {p}), CallGuard("", {Remote({3})}, {p}));
  EXPECT_NE(CallGuard("", {x}, {p}), CallGuard("", {x}, {q}));
  EXPECT_NE(CallGuard("", {x}, {p}), CallGuard("", {p}, {p}));
}

TEST_F(CallGuardTest, LocalArgumentHasNoGuard) {
  EXPECT_EQ(CallGuard("", {at::zeros({3})}, {}), "");
}

class PassingHook : public torch::autograd::FunctionPreHook {
 public:
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    return gradients;
  }
};

TEST_F(CallGuardTest, TensorWhoseNodeHasHooksHasNoGuard) {
  const at::Tensor x = Remote({3}).requires_grad_();
  const at::Tensor y = at::exp(x);
  EXPECT_EQ(CountNodeHooks(x), 0u);
  EXPECT_EQ(CountNodeHooks(y), 0u);
  y.grad_fn()->add_pre_hook(std::make_unique<PassingHook>());
  EXPECT_EQ(CountNodeHooks(y), 1u);
  EXPECT_EQ(CallGuard("", {y}, {}), "");
  EXPECT_EQ(CallGuard("", {Remote({3})}, {y}), "");
}

TEST_F(CallGuardTest, GradientsAreAPart) {
  const at::Tensor p = Remote({3}).requires_grad_();
  const at::Tensor q = Remote({3}).requires_grad_();
  const std::string without = GradientGuard({}, {p, q});
  p.mutable_grad() = Remote({3});
  q.mutable_grad() = Remote({3});
  const std::string with = GradientGuard({}, {p, q});
  EXPECT_NE(without, with);
  p.mutable_grad() = Remote({3});
  EXPECT_EQ(with, GradientGuard({}, {p, q}));
  q.mutable_grad() = p.grad();
  EXPECT_NE(with, GradientGuard({}, {p, q}));
}

TEST_F(CallGuardTest, AnomalyDetectionSeesEveryCall) {
  EXPECT_EQ(FindCallInterceptor(), "");
  torch::autograd::AnomalyMode::set_enabled(true, /*check_nan=*/false);
  EXPECT_EQ(FindCallInterceptor(),
            "autograd's anomaly detection sees every call");
  torch::autograd::AnomalyMode::set_enabled(false, /*check_nan=*/false);
  EXPECT_EQ(FindCallInterceptor(), "");
}

class SideEffectsTest : public CaptureTest {
 protected:
  template <typename Function>
  std::string RefusalOf(Function function) {
    SideEffectObserver observer(recorder_, CurrentLane());
    OperatorObserver* const outer = ExchangeObserver(&observer);
    function();
    ExchangeObserver(outer);
    return observer.refusal();
  }

  const at::NoGradGuard no_grad_;
};

TEST_F(SideEffectsTest, OperatorsOnTheDeviceHaveNone) {
  const at::Tensor x = Remote({2});
  EXPECT_EQ(RefusalOf([&] { at::exp(x).add_(x).mul_(2); }), "");
}

TEST_F(SideEffectsTest, LocalTensorIsRefusedUnlessItHoldsNumbers) {
  const at::Tensor x = Remote({2}), local = at::ones({});
  EXPECT_EQ(RefusalOf([&] { at::add(x, local); }),
            "aten::add.Tensor reads a tensor of this process");
  EXPECT_EQ(RefusalOf([&] { local.clone(); }),
            "aten::clone reads a tensor of this process");
  EXPECT_EQ(RefusalOf([&] { local.add_(1); }),
            "aten::add_.Scalar writes a tensor of this process");
  EXPECT_EQ(RefusalOf([&] { at::add(x, at::ones({})); }), "");
}

TEST_F(SideEffectsTest, OtherDeviceIsRefused) {
  const at::Tensor other =
      at::empty({2}, at::TensorOptions("remote_accelerator:1"));
  EXPECT_EQ(RefusalOf([&] { at::exp(other); }),
            "aten::exp uses remote_accelerator:1 as well");
}

TEST_F(SideEffectsTest, LocalRandomNumbersAreRefused) {
  EXPECT_EQ(RefusalOf([] { at::randn({2}); }),
            "aten::randn draws random numbers in this process");
}

TEST_F(SideEffectsTest, ResizeOfAnEarlierTensorIsRefused) {
  const at::Tensor x = Remote({2});
  EXPECT_EQ(RefusalOf([&] { x.resize_({5}); }),
            "aten::resize_ changes the shape of a tensor that existed before");
  EXPECT_EQ(RefusalOf([&] { Remote({2}).resize_({5}); }), "");
}

TEST_F(SideEffectsTest, SnapshotDetectsChangesWithoutOperators) {
  at::Tensor x = Remote({2});
  {
    const SideEffectSnapshot before({x}, {});
    EXPECT_EQ(before.FirstChange({x}), "");
    x.set_data(Remote({2}));
    EXPECT_EQ(before.FirstChange({x}), "it gives an argument other memory");
  }
  {
    const SideEffectSnapshot before({x}, {});
    x.mutable_grad() = Remote({2});
    EXPECT_EQ(before.FirstChange({x}), "it gives an argument another gradient");
  }
  {
    at::Tensor gradient = Remote({2});
    const SideEffectSnapshot before({x}, {gradient});
    gradient.set_data(Remote({2}));
    EXPECT_EQ(before.FirstChange({x}), "it gives a gradient other memory");
  }
  const SideEffectSnapshot before({x}, {});
  at::randn({2});
  EXPECT_TRUE(before.CpuGeneratorChanged());
  EXPECT_EQ(before.FirstChange({x}), "");
  at::manual_seed(3);
  EXPECT_EQ(before.FirstChange({x}), "it seeds a generator, or sets its state");
}

class ModuleWatchTest : public testing::Test {
 protected:
  std::pair<Tensors, std::string> Inspect() {
    std::pair<Tensors, std::string> seen;
    watch_.Inspect(&seen.first, &seen.second);
    return seen;
  }

  torch::nn::Linear linear_{2, 3};
  torch::nn::Sequential outer_{linear_, torch::nn::Dropout(0.5)};
  ModuleWatch watch_{{outer_.ptr()}};
};

TEST_F(ModuleWatchTest, UnchangedModulesHaveTheSameKeyAndTensors) {
  const auto first = Inspect(), second = Inspect();
  EXPECT_EQ(first.second, second.second);
  ASSERT_EQ(first.first.size(), 2u);
  EXPECT_TRUE(first.first[0].is_same(linear_->weight));
  EXPECT_TRUE(first.first[1].is_same(second.first[1]));
}

TEST_F(ModuleWatchTest, TrainingModeOfASubmoduleIsPartOfTheKey) {
  const std::string training = Inspect().second;
  linear_->eval();
  EXPECT_NE(Inspect().second, training);
}

TEST_F(ModuleWatchTest, TensorThatReplacesARegisteredOneIsSeen) {
  const std::string before = Inspect().second;
  linear_->weight = torch::ones({3, 2});
  const auto after = Inspect();
  EXPECT_NE(after.second, before);
  ASSERT_EQ(after.first.size(), 3u);
  EXPECT_TRUE(after.first[2].is_same(linear_->weight));
}

TEST_F(ModuleWatchTest, NullModuleThrows) {
  EXPECT_THROW(ModuleWatch({nullptr}), c10::Error);
}

}  // namespace
}  // namespace djinn::capture
