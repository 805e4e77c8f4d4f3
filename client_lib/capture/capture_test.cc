// What capture records and returns, without any worker: names of the nodes,
// metadata of the results, errors at the call.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/capture/backend.h"
#include "client_lib/capture/capture_kernel.h"
#include "client_lib/capture/capture_scope_fallback.h"
#include "client_lib/capture/process_session.h"
#include "client_lib/capture/recording_session.h"
#include "client_lib/capture/registration.h"
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

class CaptureTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterBackend();
    RegisterOperators();
    RegisterCaptureScope();
  }
  void SetUp() override {
    session_ = std::make_shared<RecordingSession>();
    ASSERT_TRUE(SetSession(session_).ok());
    recorder_ = session_->Recorder(0);
  }
  void TearDown() override { TakeSession(); }

  at::Device device_{"remote_accelerator:0"};
  std::shared_ptr<RecordingSession> session_;
  std::shared_ptr<RecordingDevice> recorder_;
  at::Tensor Remote(at::IntArrayRef sizes) {
    return at::empty(sizes, at::TensorOptions(device_));
  }
};

// What `call` returns must look the same as on the CPU.
void ExpectSameMetadata(const at::Tensor& remote, const at::Tensor& cpu) {
  EXPECT_EQ(remote.sizes(), cpu.sizes());
  EXPECT_EQ(remote.strides(), cpu.strides());
  EXPECT_EQ(remote.scalar_type(), cpu.scalar_type());
  EXPECT_EQ(remote.storage_offset(), cpu.storage_offset());
}

TEST_F(CaptureTest, EveryOverloadHasADecision) {
  const RegistrationCounts& counts = RegisterOperators();
  EXPECT_GT(counts.captured, 2000u);
  EXPECT_EQ(counts.kept_whole, 24u);
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

TEST_F(CaptureTest, ViewsChangedInPlaceAreNoNodes) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({4, 6});
  a.t_().unsqueeze_(0).squeeze_().unsqueeze_(1).squeeze_(1).transpose_(0, 1);
  a.as_strided_({2, 3}, {1, 2}, 4).detach_();
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
  EXPECT_EQ(a.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(a.strides(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(a.storage_offset(), 4);
}

TEST_F(CaptureTest, KeepsCompositesWholeWithoutGradient) {
  const c10::InferenceMode inference;
  at::Tensor x = Remote({2, 5, 8}), w = Remote({3, 8}), bias = Remote({3});
  ExpectSameMetadata(at::linear(x, w, bias), at::zeros({2, 5, 3}));
  at::layer_norm(x, {8});
  at::softmax(x, -1);
  at::matmul(x, w.t());
  EXPECT_THAT(recorder_->TakeNames(),
              ElementsAre("aten::linear", "aten::layer_norm",
                          "aten::softmax.int", "aten::matmul"));
}

// The CPU's matrix products take a lazy conjugation as it is: other bits than
// of a matrix that was conjugated before.
TEST_F(CaptureTest, SplitsCompositesOfLazyOperands) {
  const at::NoGradGuard no_gradient;
  const at::Tensor x =
      at::empty({3, 4}, at::dtype(at::kComplexFloat).device(device_));
  at::matmul(x.mH(), x);
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre("aten::mm"));
}

TEST_F(CaptureTest, SplitsCompositesForAGradient) {
  at::Tensor x = Remote({5, 8}), w = Remote({3, 8}).requires_grad_();
  at::Tensor y = at::linear(x, w);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_THAT(recorder_->TakeNames(), Not(Contains("aten::linear")));
  y.sum().backward();
  EXPECT_EQ(w.grad().sizes(), w.sizes());
  EXPECT_EQ(w.grad().device(), device_);
}

TEST_F(CaptureTest, EinsumOfOneOperandIsAViewOfIt) {
  const at::NoGradGuard no_grad;
  at::Tensor a = Remote({3, 4});
  const at::Tensor view = at::einsum("ij->ji", {a});
  EXPECT_TRUE(view.is_view());
  EXPECT_TRUE(view.is_alias_of(a));
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
  at::einsum("ij,kj->ik", {a, a});
  EXPECT_THAT(recorder_->TakeNames(), ElementsAre("aten::einsum"));
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

TEST_F(CaptureTest, TrainsAModuleWithoutAskingTheWorker) {
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
  // An addend with more dimensions than the product has.
  EXPECT_THROW(at::addmm(Remote({1, 2, 5}), a, Remote({3, 5})), c10::Error);
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
}

// What kernels refuse, and schemas do not say.
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
        [=] { x.clone().normal_(); },
        [=] { at::randn({3}, options); },
    };
  };
  for (const at::ScalarType type :
       {at::kByte, at::kFloat, at::kBool, at::kComplexFloat}) {
    const auto here = program(at::kCPU, type), there = program(device_, type);
    for (size_t i = 0; i < here.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(i, " ", c10::toString(type)));
      std::string expected = "none";
      try {
        here[i]();
      } catch (const c10::Error& error) {
        expected = error.what_without_backtrace();
      }
      // Not only the first time.
      for (int time = 0; time < 2; ++time) {
        std::string actual = "none";
        try {
          there[i]();
        } catch (const c10::Error& error) {
          actual = error.what_without_backtrace();
        }
        EXPECT_EQ(actual, expected);
      }
    }
  }
}

// Kernels of several outputs refer to them when they return.
TEST_F(CaptureTest, TriesCallsWithSeveralOutputs) {
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

TEST_F(CaptureTest, ATrialLeavesTheProcessAlone) {
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

TEST_F(CaptureTest, AMaskThatDoesNotBroadcastIsRefusedAtTheCall) {
  const c10::InferenceMode inference;
  const at::Tensor x = Remote({2, 3, 4, 8}), mask = Remote({5, 4});
  EXPECT_THROW(at::scaled_dot_product_attention(x, x, x, mask), c10::Error);
  at::scaled_dot_product_attention(x, x, x, mask.slice(0, 0, 4));
}

TEST_F(CaptureTest, RaisesErrorsAboutOutputsAtTheCall) {
  const c10::InferenceMode inference;
  at::Tensor base = Remote({4, 3}), one = Remote({1}), counts;
  counts = at::empty({3, 3}, at::TensorOptions(device_).dtype(at::kLong));
  at::Tensor bytes =
      at::empty({4}, at::TensorOptions(device_).dtype(at::kByte));
  const at::Tensor x = base.narrow(0, 0, 3), mask = at::gt(bytes, 1);
  at::Tensor next = base.narrow(0, 1, 3), many = one.expand({3, 3});
  at::Tensor row = Remote({3}), places = counts[0];
  recorder_->TakeNames();
  const auto refused = [](const char* text, auto call) {
    try {
      call();
      ADD_FAILURE() << "nothing raised; expected " << text;
    } catch (const std::exception& error) {
      EXPECT_THAT(std::string(error.what()), HasSubstr(text));
    }
  };
  refused("single memory location", [&] { at::sub_out(many, x, x); });
  refused("single memory location", [&] { at::sub_out(next, x, x); });
  refused("single memory location", [&] { many.addmm_(x, x); });
  refused("single memory location", [&] { many.copy_(x); });
  refused("single memory location", [&] { many.abs_(); });
  refused("single memory location", [&] { many.normal_(); });
  refused("single memory location", [&] { at::celu_(many); });
  at::Tensor tail = counts.slice(1, 1);
  refused("single memory location", [&] { at::trunc_out(tail, counts); });
  refused("single memory location", [&] { base.copy_(base[0]); });
  refused("single memory location", [&] { many.scatter_(0, counts, 1); });
  refused("single memory location", [&] { next.scatter_(0, counts, next); });
  refused("single memory location", [&] { next.index_copy_(0, places, x); });
  refused("single memory location", [&] { next.index_put_({places}, x); });
  refused("single memory location",
          [&] { at::gather_out(next, next, 0, counts); });
  refused("single memory location",
          [&] { at::cat_out(base, {x, row.view({1, 3})}); });
  const at::Tensor sides = Remote({3, 2, 4, 4}), side = sides.narrow(1, 0, 1);
  at::Tensor swapped = Remote({2, 3, 4, 4}).transpose(0, 1);
  // Not for want of a trial: dtypes and ranks that have passed.
  at::Tensor fresh = sides.clone();
  fresh.tril_();
  at::tril_out(fresh, sides);
  at::addr_out(row = Remote({3, 3}), x, x[0], x[1]);
  recorder_->TakeNames();
  at::Tensor spread = side.expand({3, 2, 4, 4});
  refused("single memory location", [&] { spread.tril_(); });
  refused("single memory location", [&] { spread.triu_(1); });
  refused("single memory location", [&] { at::triu_out(spread, sides); });
  refused("one behind the other", [&] { at::tril_out(swapped, sides); });
  refused("single memory location", [&] { many.addr_(x[0], x[1]); });
  refused("single memory location", [&] { at::addr_out(next, x, x[0], x[1]); });
  refused("single memory location", [&] { at::softmax_out(many, x, 1); });
  refused("single memory location", [&] { at::cross_out(many, x, x, 1); });
  refused("single memory location", [&] { at::addmm_out(next, x, x, x); });
  row = Remote({3});
  refused("take from an empty", [&] { at::take(Remote({0}), counts); });
  refused("Found dtype", [&] { at::silu_out(counts, x); });
  refused("doesn't match the broadcast", [&] { at::sub_out(row, row, base); });
  const char* const unfit =
      "output with shape [3] doesn't match the broadcast shape [4, 3]";
  refused(unfit, [&] { row.copy_(base); });
  refused(unfit, [&] { row.copy_(at::ones({4, 3})); });
  refused("must match the size", [&] { row.copy_(at::ones({2})); });
  refused("without overflow", [&] { bytes.masked_fill_(mask, -3.7); });
  refused("without overflow", [&] { at::masked_fill(bytes, mask, 1e9); });
  refused("without overflow", [&] { bytes.fill_(300); });
  EXPECT_THAT(recorder_->TakeNames(), IsEmpty());
  // What PyTorch allows.
  many.tril_();
  sides.narrow(0, 0, 1).expand({3, 2, 4, 4}).triu_();
  swapped.tril_();
  at::addmm_out(next, next, x, x);
  at::sub_out(base, base, row);
  next.index_fill_(0, places, next.select(0, 0).select(0, 0));
  many.index_put_({places}, one);
  next.index_add_(0, places, row.expand({3, 3}));
  next.copy_(row);
  many.copy_(one.expand({3, 3}));
  many.conj_physical_();
  counts.select(0, 0).expand({2, 3}).nan_to_num_();
  at::empty({0}, bytes.options().dtype(at::kBool)).cumprod_(0);
  next.sub_(next);
  bytes.fill_(7.5);
  at::Tensor real = Remote({2}), complex = real.to(at::kComplexFloat);
  at::abs_out(real, complex);
  at::abs_out(complex, complex);
}

TEST_F(CaptureTest, LazyBitsAreResolvedByACopy) {
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

TEST_F(CaptureTest, CopiesThatKeepAnOffsetAreLeftToTheWorker) {
  const c10::InferenceMode inference;
  const at::Tensor x = Remote({4, 3});
  const uint64_t before = SynchronousCalls()["aten::select_scatter"];
  at::select_scatter(x, Remote({3}), 0, 1);
  EXPECT_EQ(SynchronousCalls()["aten::select_scatter"], before);
  at::select_scatter(x.narrow(0, 1, 2), Remote({3}), 0, 1);
  EXPECT_EQ(SynchronousCalls()["aten::select_scatter"], before + 1);
}

TEST_F(CaptureTest, RefusesMixedDevices) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({2, 3});
  const auto refused = [](const char* text, auto call) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected " << text;
    } catch (const c10::Error& error) {
      EXPECT_STREQ(error.what_without_backtrace(), text);
    }
  };
  const at::Tensor here = at::ones({2, 3});
  refused(
      "Expected all tensors to be on the same device, but found at least two "
      "devices, remote_accelerator:0 and cpu!",
      [&] { at::add(a, here); });
  refused(
      "Expected all tensors to be on the same device, but found at least two "
      "devices, cpu and remote_accelerator:0!",
      [&] { at::add(here, a); });
  refused(
      "Expected all tensors to be on the same device, but got mat2 is on cpu, "
      "different from other tensors on remote_accelerator:0 (when checking "
      "argument in method wrapper_remote_accelerator_mm)",
      [&] { at::mm(a, here.t()); });
  at::Tensor number = at::ones({});
  EXPECT_THROW(at::add_out(number, a[0][0], 1), c10::Error);  // written
  EXPECT_NO_THROW(at::add(a, at::ones({})));  // a 0-dimensional CPU tensor
  EXPECT_NO_THROW(a.mul(3));
  at::Tensor other =
      at::empty({2, 3}, at::TensorOptions("remote_accelerator:1"));
  EXPECT_THROW(at::add(a, other), c10::Error);
}

TEST_F(CaptureTest, WholeStoragesGoFromDeviceToDevice) {
  const c10::InferenceMode inference;
  const std::shared_ptr<RecordingDevice> other = session_->Recorder(1);
  const at::Device there("remote_accelerator:1");
  const auto recorded =
      [&](const char* what, const std::vector<std::string>& here,
          uint64_t copied, const std::vector<std::string>& at_other) {
        EXPECT_EQ(recorder_->TakeNames(), here) << what;
        EXPECT_EQ(other->copies().back(), copied) << what;
        EXPECT_EQ(other->TakeNames(), at_other) << what;
      };
  const at::Tensor x = Remote({4, 6});
  ExpectSameMetadata(x.to(there), x);
  recorded("as it is", {}, 96, {});
  x.t().to(there);
  recorded("transposed as it is", {}, 96, {});
  ExpectSameMetadata(x.slice(1, 0, 2).to(there), at::zeros({4, 2}));
  recorded("laid out here", {"aten::copy_"}, 32, {});
  at::zeros({3, 4, 6}, there).select(0, 1).copy_(x);
  recorded("into a part", {}, 96, {"aten::zeros", "aten::copy_"});
  x.to(there, at::kDouble);
  recorded("converted there", {}, 96, {"aten::copy_"});
  at::empty({4, 6}, there).copy_(Remote({6}));
  recorded("grown there", {}, 24, {"aten::copy_"});
  // Nothing of it crosses this process.
  EXPECT_THAT(recorder_->reads(), IsEmpty());
  EXPECT_THAT(other->uploads(), IsEmpty());
  EXPECT_EQ(Remote({0, 3}).to(there).device(), there);
  EXPECT_EQ(other->copies().back(), 24u);
}

TEST_F(CaptureTest, AStrictSessionRefusesCopiesBetweenDevices) {
  const c10::InferenceMode inference;
  const at::Device there("remote_accelerator:1");
  const at::Tensor x = Remote({2});
  const auto text = [](auto call) -> std::string {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "nothing thrown";
  };
  const std::string two =
      "Expected all tensors to be on the same device, but found at least two "
      "devices, remote_accelerator:0 and ";
  session_->BeStrict("");
  EXPECT_EQ(text([&] { x.to(there); }), two + "remote_accelerator:1!");
  session_->BeStrict("See the handbook.");
  EXPECT_EQ(text([&] { x.to(there); }),
            two + "remote_accelerator:1! See the handbook.");
  EXPECT_EQ(text([&] { at::add(x, at::ones({2})); }),
            two + "cpu! See the handbook.");
  EXPECT_EQ(text([&] { x.to(at::kCPU); }), "nothing thrown");
  session_->BeStrict(std::nullopt);
  EXPECT_EQ(text([&] { x.to(there); }), "nothing thrown");
}

TEST_F(CaptureTest, OutArgumentsAreResized) {
  const c10::InferenceMode inference;
  at::Tensor a = Remote({2, 3});
  at::Tensor out = Remote({0});
  at::add_out(out, a, a);
  EXPECT_EQ(out.sizes(), a.sizes());
  EXPECT_EQ(recorder_->resizes(), (std::vector<uint64_t>{24}));
  // A kernel that sizes its output walks through memory as the operands lie.
  EXPECT_THAT(recorder_->TakeNames(),
              ElementsAre("aten::add.Tensor", "aten::copy_"));
  at::add_out(out, a, a);
  const std::vector<RecordedCall> calls = recorder_->TakeCalls();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].name, "aten::add.out");
  EXPECT_EQ(calls[0].node.writes.size(), 1u);
}

TEST_F(CaptureTest, RunningStatisticsAreWrittenInTrainingOnly) {
  const c10::InferenceMode inference;
  const at::Tensor x = Remote({2, 3, 4}), mean = Remote({3}), var = Remote({3});
  for (const bool training : {true, false}) {
    at::native_batch_norm(x, {}, {}, mean, var, training, 0.1, 1e-5);
    at::batch_norm(x, {}, {}, mean, var, training, 0.1, 1e-5, false);
    const std::vector<RecordedCall> calls = recorder_->TakeCalls();
    ASSERT_EQ(calls.size(), 2u);
    for (const RecordedCall& call : calls) {
      EXPECT_EQ(call.node.writes.size(), training ? 2u : 0u) << call.name;
      EXPECT_THAT(call.node.overwrites, IsEmpty());
    }
    EXPECT_EQ(calls[0].node.results.size(), 3u);
    EXPECT_EQ(calls[1].node.results.size(), 1u);
  }
}

TEST_F(CaptureTest, OperatorsThatWriteAndReturnFreshTensors) {
  const c10::InferenceMode inference;
  const uint64_t synchronous = SynchronousCalls().size();
  const auto run = [](at::Device device) {
    const auto options = at::TensorOptions(device);
    const at::Tensor x = at::zeros({2, 3, 4, 4}, options);
    const at::Tensor mean = at::zeros({3}, options);
    const at::Tensor var = at::ones({3}, options);
    const auto legit = at::_native_batch_norm_legit(
        x, {}, {}, const_cast<at::Tensor&>(mean), const_cast<at::Tensor&>(var),
        true, 0.1, 1e-5);
    const auto updated =
        at::_batch_norm_with_update(x, {}, {}, const_cast<at::Tensor&>(mean),
                                    const_cast<at::Tensor&>(var), 0.1, 1e-5);
    at::Tensor noise = at::zeros_like(x);
    return std::vector<at::Tensor>{
        std::get<0>(legit),   std::get<1>(legit),
        std::get<2>(legit),   std::get<0>(updated),
        std::get<1>(updated), std::get<2>(updated),
        std::get<3>(updated), at::rrelu_with_noise(x, noise, 0.1, 0.3, true)};
  };
  const std::vector<at::Tensor> remote = run(device_), cpu = run(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameMetadata(remote[i], cpu[i]);
  }
  EXPECT_EQ(SynchronousCalls().size(), synchronous);
  size_t mixed = 0;
  for (const RecordedCall& call : recorder_->TakeCalls()) {
    if (!call.node.writes.empty() && !call.node.results.empty()) ++mixed;
  }
  EXPECT_EQ(mixed, 3u);
}

TEST_F(CaptureTest, ResizedOutputsAreLaidOutAsTheCpuDoes) {
  const c10::InferenceMode inference;
  const auto run = [](at::Device device) {
    const at::Tensor x = at::empty({2, 4}, at::TensorOptions(device)).t();
    at::Tensor strided = at::empty({0}, at::TensorOptions(device));
    at::gelu_out(strided, x);
    at::Tensor plain =
        at::empty({0}, at::TensorOptions(device).dtype(at::kBool));
    at::isnan_out(plain, x);
    EXPECT_THROW(at::isnan_out(strided, x), c10::Error);
    // Resized before the error.
    at::Tensor refused = at::empty({3}, at::TensorOptions(device));
    EXPECT_THROW(at::isnan_out(refused, x), c10::Error);
    return std::vector<at::Tensor>{strided, plain, refused};
  };
  const std::vector<at::Tensor> remote = run(device_), cpu = run(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) ExpectSameMetadata(remote[i], cpu[i]);
}

TEST_F(CaptureTest, SizesOutputsByFactoriesCompositesAndLists) {
  const c10::InferenceMode inference;
  const uint64_t synchronous = SynchronousCalls().size();
  const auto run = [](at::Device device) {
    const auto options = at::TensorOptions(device);
    const at::Tensor x = at::zeros({4, 3, 2}, options);
    const at::Tensor complex =
        at::zeros({3, 4}, options.dtype(at::kComplexFloat)).t();
    std::vector<at::Tensor> out;
    for (int i = 0; i < 4; ++i) out.push_back(at::empty({0}, options));
    at::full_out(out[0], {2, 3}, 7);
    at::arange_out(out[1], 1, 9, 2);
    at::eye_out(out[2], 3, 4);
    at::linspace_out(out[3], 0, 1, 5);
    out.push_back(at::empty({0}, options.dtype(at::kComplexFloat)));
    at::conj_physical_out(out.back(), complex);
    // Sized first, and not laid out as the functional form's result.
    out.push_back(at::empty({0}, options.dtype(at::kComplexFloat)));
    at::_fft_c2c_out(out.back(), complex, {0}, 0, true);
    std::vector<at::Tensor> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(at::empty({0}, options));
    at::unbind_copy_out(parts, x);
    out.insert(out.end(), parts.begin(), parts.end());
    at::Tensor mean = at::zeros({3}, options), var = at::ones({3}, options);
    std::vector<at::Tensor> normalised;
    for (int i = 0; i < 3; ++i) normalised.push_back(at::empty({0}, options));
    at::_native_batch_norm_legit_out(normalised[0], normalised[1],
                                     normalised[2], x, {}, {}, mean, var, true,
                                     0.1, 1e-5);
    out.insert(out.end(), normalised.begin(), normalised.end());
    // Sized by an out= kernel within a composite.
    out.push_back(at::mvlgamma(x, 2));
    return out;
  };
  const std::vector<at::Tensor> remote = run(device_), cpu = run(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameMetadata(remote[i], cpu[i]);
  }
  EXPECT_EQ(SynchronousCalls().size(), synchronous);
}

TEST_F(CaptureTest, DropoutOfNothingReturnsItsInputAlsoAfterAnother) {
  const c10::InferenceMode inference;
  const at::Tensor x = Remote({2, 4});
  for (const bool dropped : {true, false, true}) {
    EXPECT_EQ(at::dropout(x, dropped ? 0.5 : 0., true).is_alias_of(x),
              !dropped);
  }
}

TEST_F(CaptureTest, DataDependentShapesAreAskedFor) {
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

TEST_F(CaptureTest, UploadsWholeTensorsAndPassesScalarsAlong) {
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

TEST_F(CaptureTest, AGeneratorsStateIsSentWithTheNextDraw) {
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

TEST_F(CaptureTest, WhatIsNoStateOfAGeneratorIsRefusedAtOnce) {
  at::Generator generator =
      at::detail::getPrivateUse1Hooks().getNewGenerator(0);
  EXPECT_THROW(generator.set_state(at::zeros({5056}, at::kByte)), c10::Error);
  EXPECT_THROW(generator.set_state(at::zeros({16}, at::kByte)), c10::Error);
  EXPECT_THROW(generator.set_state(at::zeros({632}, at::kDouble)), c10::Error);
  EXPECT_EQ(generator.current_seed(), c10::default_rng_seed_val);
}

TEST_F(CaptureTest, ADroppedGeneratorIsFreed) {
  const c10::InferenceMode inference;
  const at::Tensor a = Remote({4});
  {
    at::Generator generator =
        at::detail::getPrivateUse1Hooks().getNewGenerator(0);
    a.clone().normal_(0, 1, generator);
  }
  // The copy and the generator.
  EXPECT_EQ(recorder_->dead(), 2);
}

TEST_F(CaptureTest, MatchesCpuMetadataOnAnEncoderBlock) {
  const c10::InferenceMode inference;
  const auto block = [](at::Device device) {
    const auto options = at::TensorOptions(device);
    at::Tensor ids = at::zeros({2, 7}, options.dtype(at::kLong));
    at::Tensor table = at::zeros({11, 8}, options);
    at::Tensor x = at::embedding(table, ids);
    at::Tensor heads = x.view({2, 7, 2, 4}).transpose(1, 2);
    at::Tensor mask = at::zeros({2, 1, 1, 7}, options.dtype(at::kBool));
    at::Tensor attended =
        at::scaled_dot_product_attention(heads, heads, heads, mask);
    at::Tensor merged = attended.transpose(1, 2).contiguous().view({2, 7, 8});
    at::Tensor normed = at::layer_norm(at::gelu(merged) + x, {8});
    at::Tensor picked = at::where(normed > 0, normed, at::zeros({}, options));
    at::Tensor pooled = picked.sum(1) / picked.norm(2, -1, true).sum(1);
    return std::vector<at::Tensor>{x,
                                   attended,
                                   normed,
                                   picked,
                                   pooled,
                                   at::cat({x, normed}, -1),
                                   at::arange(5, options)};
  };
  const uint64_t synchronous = SynchronousCalls().size();
  const std::vector<at::Tensor> remote = block(device_);
  const std::vector<at::Tensor> cpu = block(at::kCPU);
  for (size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameMetadata(remote[i], cpu[i]);
  }
  EXPECT_EQ(SynchronousCalls().size(), synchronous);
}

TEST_F(CaptureTest, ScopeSendsFactoriesWithoutADeviceAway) {
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

TEST_F(CaptureTest, ALostDeviceThrowsItsRootError) {
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

TEST_F(CaptureTest, WithoutASessionTheErrorSaysWhatToDo) {
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
