// Tests the calls that capture keeps and the results that it returns, without a
// worker: operators, metadata, and errors at the call.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/torch.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/registration/registration.h"
#include "client_lib/capture/testing/capture_fixture.h"
#include "djinn/capture_scope.h"
#include "djinn/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Returns the error that the call throws, without PyTorch's backtrace.
std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
    return "none";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST_F(CaptureTest, EveryOverloadIsRegistered) {
  const RegistrationCounts& counts = RegisterOperators();
  EXPECT_GT(counts.captured, 2000u);
  EXPECT_EQ(counts.captured_whole, 24u);
}

TEST_F(CaptureTest, RecordsOneNodePerCallAndNoneForViews) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({4, 6});
  at::Tensor b = at::add(a, a, 2.5);
  at::Tensor view = b.view({6, 4}).t().select(0, 1).unsqueeze(0);
  view.mul_(2);
  EXPECT_THAT(recorder_->TakeNames(),
              ElementsAre("aten::add.Tensor", "aten::mul_.Scalar"));
  EXPECT_EQ(view.sizes(), at::IntArrayRef({1, 6}));
  EXPECT_EQ(view.storage().data(), b.storage().data());
}

// Returns the address range of the tensor's storage.
std::pair<const char*, const char*> RangeOf(const at::Tensor& tensor) {
  const auto* const begin =
      static_cast<const char*>(tensor.storage().data_ptr().get());
  return {begin, begin + tensor.storage().nbytes()};
}

void ExpectApart(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_TRUE(RangeOf(a).second <= RangeOf(b).first ||
              RangeOf(b).second <= RangeOf(a).first);
}

TEST_F(CaptureTest, LiveTensorsNeverShareAddresses) {
  const at::Tensor kept = Remote({1024});
  // This takes more addresses than there are, three times over.
  for (int i = 0; i < 100; ++i) {
    const at::Tensor large = at::empty(
        {int64_t{1} << 40}, at::TensorOptions(device_).dtype(at::kByte));
    ExpectApart(kept, large);
  }
  // A storage that grows may have to move.
  const at::Tensor grows = Remote({4});
  const at::Tensor next = Remote({4});
  const void* const before = grows.storage().data_ptr().get();
  grows.resize_({8});
  EXPECT_EQ(grows.storage().data_ptr().get(), before);
  grows.resize_({1000});
  ExpectApart(grows, next);
  ExpectApart(grows, kept);
  EXPECT_EQ(grows.storage().nbytes(), 4000u);
  EXPECT_EQ(recorder_->dead(), 100);
  // A size beyond the address space has its own address as well.
  const auto huge = [&] {
    return at::empty({int64_t{1} << 46},
                     at::TensorOptions(device_).dtype(at::kByte));
  };
  EXPECT_NE(huge().storage().data_ptr().get(),
            huge().storage().data_ptr().get());
}

TEST_F(CaptureTest, InPlaceViewChangesRecordNoNode) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({4, 6});
  a.t_().unsqueeze_(0).squeeze_().unsqueeze_(1).squeeze_(1).transpose_(0, 1);
  a.as_strided_({2, 3}, {1, 2}, 4).detach_();
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
  EXPECT_EQ(a.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(a.strides(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(a.storage_offset(), 4);
}

TEST_F(CaptureTest, AutogradThreadsUseTheCallersLane) {
  at::Tensor w = Remote({3, 8}).requires_grad_();
  at::relu(w).sum().backward();
  const std::vector<RecordedCall> calls = recorder_->TakeCalls();
  ASSERT_FALSE(calls.empty());
  for (const RecordedCall& call : calls) EXPECT_EQ(call.lane, calls[0].lane);
  std::thread([&] { at::relu(Remote({1})); }).join();
  const std::vector<RecordedCall> other = recorder_->TakeCalls();
  ASSERT_EQ(other.size(), 1u);
  EXPECT_NE(other[0].lane, calls[0].lane);
}

TEST_F(CaptureTest, TrainingStepMakesNoSynchronousCall) {
  torch::nn::Linear layer(8, 3);
  layer->to(device_);
  EXPECT_EQ(layer->weight.device(), device_);
  torch::optim::SGD sgd(layer->parameters(), 0.1);
  const uint64_t before = SynchronousCalls().size();
  for (int step = 0; step < 2; ++step) {
    sgd.zero_grad();
    at::Tensor loss =
        at::mse_loss(at::gelu(layer->forward(Remote({4, 8}))), Remote({4, 3}));
    loss.backward();
    sgd.step();
  }
  EXPECT_EQ(SynchronousCalls().size(), before);
  EXPECT_THAT(recorder_->TakeNames(), Contains("aten::add_.Tensor"));
}

TEST_F(CaptureTest, RaisesShapeErrorsAtTheCall) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({2, 3}), b = Remote({4, 5});
  EXPECT_THROW(at::mm(a, b), c10::Error);
  EXPECT_THROW(at::add(a, b), c10::Error);
  EXPECT_THROW(a.add_(b), c10::Error);
  EXPECT_THROW(a.add_(Remote({7, 2, 3})), c10::Error);
  EXPECT_THROW(at::linear(a, Remote({4, 3}), Remote({5})), c10::Error);
  EXPECT_THROW(at::addmm(b, a, Remote({3, 5})), c10::Error);
  // This addend has more dimensions than the product.
  EXPECT_THROW(at::addmm(Remote({1, 2, 5}), a, Remote({3, 5})), c10::Error);
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
}

// Kernels refuse these dtypes, and schemas do not say so.
TEST_F(CaptureTest, RaisesDtypeErrorsAtTheCall) {
  const at::NoGradGuard no_grad;
  const auto program = [](at::Device device, at::ScalarType type) {
    const at::TensorOptions options = at::TensorOptions(device).dtype(type);
    const at::Tensor x = at::empty({4, 4}, options);
    const at::Tensor large = at::empty({300, 300}, options);
    return std::vector<std::function<void()>>{
        [=] { x.bitwise_not(); },
        [=] { x.clone().bitwise_not_(); },
        [=] { large.bitwise_not(); },
        [=] { large.softmax(1); },
        [=] { at::conv2d(x.view({1, 1, 4, 4}), x.view({1, 1, 4, 4})); },
        [=] { x.addcmul(x, x, -1); },
        [=] { x.addcmul(x, x, 2); },
        [=] { x.addcmul(x, x, -1.5); },
        [=] { x.addcmul(x, x, 300); },
        [=] { x.add(x, 300); },
        [=] { x.add(x, 2); },
        [=] { x.add(x, -300); },
        [=] { x.clamp(0, 7); },
        [=] { x.clamp(0, 300); },
        [=] { large.clamp(0, 300); },
        [=] { large.clamp(0, 1e300); },
        [=] { x.clone().normal_(); },
        [=] { at::randn({3}, options); },
    };
  };
  for (const at::ScalarType type :
       {at::kByte, at::kFloat, at::kBool, at::kComplexFloat}) {
    const auto here = program(at::kCPU, type), there = program(device_, type);
    for (size_t i = 0; i < here.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(i, " ", c10::toString(type)));
      const std::string expected = ErrorOf(here[i]);
      // The second call finds the first one's memo.
      for (int time = 0; time < 2; ++time) {
        EXPECT_EQ(ErrorOf(there[i]), expected);
      }
    }
  }
}

// Kernels with several outputs use them when they return.
TEST_F(CaptureTest, CpuTrialAcceptsSeveralOutputs) {
  const c10::InferenceMode inference;
  for (const at::ScalarType type : {at::kLong, at::kFloat, at::kDouble}) {
    for (const int64_t size : {1, 3, 5}) {
      const at::Tensor x = at::empty({size, 5, 5}, device_).to(type);
      at::Tensor values = at::empty_like(x);
      at::Tensor places = at::empty_like(x, x.options().dtype(at::kLong));
      at::cummax_out(values, places, x, 0);
      at::sort_out(values, places, x, 0, true);
      EXPECT_THROW(at::topk_out(places, places, x.to(at::kBool), 1),
                   c10::Error);
    }
  }
}

TEST_F(CaptureTest, CpuTrialDoesNotDrawFromTheDefaultGenerator) {
  const c10::InferenceMode inference;
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  at::Tensor x = Remote({4});
  x.normal_();
  at::randn({3}, at::TensorOptions(device_));
  at::dropout(x, 0.5, true);
  at::multinomial(x, 2);
  at::_assert_async(x[0], "not the type of number that was hoped for");
  EXPECT_TRUE(
      at::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
}

TEST_F(CaptureTest, CopyResolvesLazyBits) {
  const auto run = [](at::Device device) {
    const at::Tensor x =
        at::zeros({2, 3}, at::TensorOptions(device).dtype(at::kComplexFloat));
    const at::Tensor negative = at::imag(x.conj());
    at::Tensor written = at::zeros_like(x).conj();
    written.copy_(x.conj().t().clone().t());
    return std::vector<at::Tensor>{x.conj() * x, x.conj().clone(),
                                   negative.clone(), negative + negative,
                                   written};
  };
  const std::vector<at::Tensor> remote = run(device_), cpu = run(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameMetadata(remote[i], cpu[i]);
    EXPECT_EQ(remote[i].is_conj(), cpu[i].is_conj());
    EXPECT_EQ(remote[i].is_neg(), cpu[i].is_neg());
  }
}

TEST_F(CaptureTest, ConvertedOperandsAreLaidOutAsOnTheCpu) {
  const c10::InferenceMode inference;
  const auto run = [](at::Device device) {
    const auto options = at::TensorOptions(device);
    const at::Tensor expanded =
        at::zeros({4, 1}, options.dtype(at::kBFloat16)).expand({4, 3});
    const at::Tensor turned = at::zeros({3, 4}, options.dtype(at::kDouble)).t();
    return std::vector<at::Tensor>{
        at::addcmul(expanded, turned, at::zeros({4, 3}, options)),
        expanded + turned, turned + expanded, at::lt(expanded, turned),
        at::exp(expanded)};
  };
  const std::vector<at::Tensor> remote = run(device_), cpu = run(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameMetadata(remote[i], cpu[i]);
  }
}

TEST_F(CaptureTest, ResultWithAnOffsetIsComputedSynchronously) {
  const c10::InferenceMode inference;
  const at::Tensor x = Remote({4, 3});
  const uint64_t before = SynchronousCalls()["aten::select_scatter"];
  at::select_scatter(x, Remote({3}), 0, 1);
  EXPECT_EQ(SynchronousCalls()["aten::select_scatter"], before);
  at::select_scatter(x.narrow(0, 1, 2), Remote({3}), 0, 1);
  EXPECT_EQ(SynchronousCalls()["aten::select_scatter"], before + 1);
}

TEST_F(CaptureTest, DropoutWithProbabilityZeroReturnsItsInput) {
  const c10::InferenceMode inference;
  const at::Tensor x = Remote({2, 4});
  for (const bool dropped : {true, false, true}) {
    EXPECT_EQ(at::dropout(x, dropped ? 0.5 : 0., true).is_alias_of(x),
              !dropped);
  }
}

TEST_F(CaptureTest, DataDependentShapeIsComputedSynchronously) {
  const c10::InferenceMode inference;
  const uint64_t before = SynchronousCalls()["aten::nonzero"];
  at::Tensor found = at::nonzero(Remote({4}));
  EXPECT_EQ(found.sizes(), at::IntArrayRef({1}));
  EXPECT_EQ(SynchronousCalls()["aten::nonzero"], before + 1);
}

TEST_F(CaptureTest, ReadsMoveOnlyTheView) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({100, 100});
  a.select(0, 3).cpu();
  EXPECT_EQ(recorder_->reads().back(), 400u);
  EXPECT_EQ(a.select(0, 3).select(0, 1).item<float>(), 0.0f);
  EXPECT_EQ(recorder_->reads().back(), 4u);
}

TEST_F(CaptureTest, UploadsTensorsAndInlinesScalars) {
  const c10::InferenceMode inference;
  at::Tensor a = at::ones({10, 10}).to(device_);
  EXPECT_EQ(recorder_->uploads(), (std::vector<uint64_t>{400}));
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
  a.select(0, 1).copy_(at::ones({10}));
  EXPECT_EQ(recorder_->uploads().back(), 40u);
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre("aten::copy_"));
  a.select(0, 1).fill_(3.5);
  at::scalar_tensor(2.0).to(device_);
  EXPECT_EQ(recorder_->uploads().size(), 2u);
}

TEST_F(CaptureTest, RandomCallsNameTheSeededGenerator) {
  const c10::InferenceMode inference;
  at::manual_seed(7);
  at::Tensor a = Remote({4});
  a.normal_();
  at::dropout(a, 0.5, /*train=*/true);
  at::dropout(a, 0.5, /*train=*/false);
  const std::vector<RecordedCall> calls = recorder_->TakeCalls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<srg::GeneratorSlot>(
      calls[0].node.arguments.back()));
  EXPECT_TRUE(calls[1].node.implicit_generator_slot.has_value());
  EXPECT_EQ(recorder_->seeds(), (std::vector<uint64_t>{7}));
}

TEST_F(CaptureTest, GeneratorStateIsSentWithTheNextDraw) {
  const c10::InferenceMode inference;
  at::Generator generator =
      at::detail::getPrivateUse1Hooks().getNewGenerator(0);
  const at::Tensor state = at::detail::createCPUGenerator(99).get_state();
  generator.set_state(state);
  EXPECT_EQ(generator.current_seed(), 99u);
  EXPECT_THAT(recorder_->seeds(), IsEmpty());
  Remote({4}).normal_(0, 1, generator);
  Remote({4}).normal_(0, 1, generator);
  EXPECT_THAT(recorder_->seeds(), ElementsAre(99u));
  EXPECT_THAT(recorder_->uploads(), ElementsAre(state.nbytes()));
  EXPECT_EQ(generator.get_state().nbytes(), state.nbytes());
  EXPECT_THAT(recorder_->reads(), ElementsAre(state.nbytes()));
  generator.set_current_seed(5);
  Remote({4}).normal_(0, 1, generator);
  EXPECT_THAT(recorder_->seeds(), ElementsAre(99u, 5u));
  EXPECT_EQ(recorder_->uploads().size(), 1u);
}

TEST_F(CaptureTest, GeneratorSetDuringSeedTakesEffectAtTheNextDraw) {
  const c10::InferenceMode inference;
  at::Generator generator =
      at::detail::getPrivateUse1Hooks().getNewGenerator(0);
  generator.set_current_seed(1);
  recorder_->OnNextSeed([&] { generator.set_current_seed(2); });
  Remote({4}).normal_(0, 1, generator);
  EXPECT_EQ(generator.current_seed(), 2u);
  EXPECT_THAT(recorder_->seeds(), ElementsAre(1u));
  Remote({4}).normal_(0, 1, generator);
  EXPECT_THAT(recorder_->seeds(), ElementsAre(1u, 2u));
  Remote({4}).normal_(0, 1, generator);
  EXPECT_EQ(recorder_->seeds().size(), 2u);
  // A state that is set after a seed behaves the same: if the storage is new,
  // it is sent after the seed.
  const at::Tensor state = at::detail::createCPUGenerator(99).get_state();
  generator = at::detail::getPrivateUse1Hooks().getNewGenerator(0);
  generator.set_state(state);
  recorder_->OnNextSeed([&] { generator.set_state(state); });
  Remote({4}).normal_(0, 1, generator);
  EXPECT_EQ(recorder_->uploads().size(), 1u);
  Remote({4}).normal_(0, 1, generator);
  EXPECT_EQ(recorder_->uploads().size(), 2u);
}

TEST_F(CaptureTest, ConcurrentDrawWaitsForTheSeed) {
  at::Generator generator =
      at::detail::getPrivateUse1Hooks().getNewGenerator(0);
  generator.set_current_seed(1);
  const auto draw = [&] {
    const c10::InferenceMode inference;
    Remote({4}).normal_(0, 1, generator);
  };
  std::thread other;
  bool sent = false;
  recorder_->OnNextSeed([&] {
    other = std::thread(draw);
    // Nothing was drawn yet, whatever the other thread does.
    EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
    sent = true;
  });
  draw();
  EXPECT_TRUE(sent);
  other.join();
  EXPECT_THAT(recorder_->seeds(), ElementsAre(1u));
  const std::vector<RecordedCall> calls = recorder_->TakeCalls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].node.arguments.back(), calls[1].node.arguments.back());
}

TEST_F(CaptureTest, InvalidGeneratorStateThrows) {
  at::Generator generator =
      at::detail::getPrivateUse1Hooks().getNewGenerator(0);
  EXPECT_THROW(generator.set_state(at::zeros({5056}, at::kByte)), c10::Error);
  EXPECT_THROW(generator.set_state(at::zeros({16}, at::kByte)), c10::Error);
  EXPECT_THROW(generator.set_state(at::zeros({632}, at::kDouble)), c10::Error);
  EXPECT_EQ(generator.current_seed(), c10::default_rng_seed_val);
}

TEST_F(CaptureTest, GpuGeneratorStateIsSeedAndOffset) {
  const c10::InferenceMode inference;
  recorder_->SetGeneratorBytes(16);
  at::Generator generator =
      at::detail::getPrivateUse1Hooks().getNewGenerator(0);
  generator.set_current_seed(7);
  Remote({4}).normal_(0, 1, generator);
  EXPECT_EQ(generator.get_state().nbytes(), 16);
  EXPECT_THAT(recorder_->reads(), ElementsAre(16));
  const at::Tensor state = at::zeros({16}, at::kByte);
  state[0] = 9;
  state[8] = 4;
  generator.set_state(state);
  EXPECT_EQ(generator.current_seed(), 9u);
  Remote({4}).normal_(0, 1, generator);
  EXPECT_THAT(recorder_->uploads(), ElementsAre(16));
  state[8] = 3;
  EXPECT_THROW(generator.set_state(state), c10::Error);
  EXPECT_THROW(
      generator.set_state(at::detail::createCPUGenerator(5).get_state()),
      c10::Error);
  EXPECT_EQ(generator.current_seed(), 9u);
}

TEST_F(CaptureTest, DestroyedGeneratorReleasesItsStorage) {
  const c10::InferenceMode inference;
  const at::Tensor a = Remote({4});
  {
    at::Generator generator =
        at::detail::getPrivateUse1Hooks().getNewGenerator(0);
    a.clone().normal_(0, 1, generator);
  }
  // The copy and the generator were released.
  EXPECT_EQ(recorder_->dead(), 2);
}

TEST_F(CaptureTest, ScopeChoosesTheDeviceOfFactories) {
  at::Tensor outside = at::zeros({2});
  {
    CaptureScope scope(1);
    EXPECT_EQ(at::zeros({2}).device(), at::Device("remote_accelerator:1"));
    EXPECT_TRUE(at::ones({2}, at::TensorOptions(at::kCPU)).is_cpu());
    EXPECT_TRUE(at::zeros_like(outside).is_cpu());
    {
      CaptureScope inner(0);
      EXPECT_EQ(at::randn({2}).device(), device_);
    }
    torch::nn::Linear layer(2, 2);
    EXPECT_EQ(layer->weight.device().index(), 1);
  }
  EXPECT_TRUE(at::zeros({2}).is_cpu());
}

TEST_F(CaptureTest, LostDeviceThrowsItsRootError) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({2});
  recorder_->Fail(absl::UnavailableError("worker w1 is gone"));
  try {
    at::add(a, a);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("w1"));
  }
}

TEST_F(CaptureTest, CallWithoutSessionNamesConnect) {
  TakeSession();
  try {
    Remote({2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.reason(), "NO_SESSION");
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("djinn::Connect"));
  }
}

}  // namespace
}  // namespace djinn::capture
