// Compares operators that run through the library with the same operators
// called directly.
#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Parallel.h"
#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/imag.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/real.h"
#include "ATen/ops/scalar_tensor.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "ATen/record_function.h"
#include "c10/core/InferenceMode.h"
#include "common/base/error.h"
#include "gpu_worker/device/cpu/cpu_target.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gpu_worker/device/torch/call_runner.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Ints = std::vector<int64_t>;
using c10::IValue;

at::Tensor Random(at::IntArrayRef sizes) { return at::randn(sizes); }

at::Tensor Wrapped(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(
      number, at::TensorOptions().dtype(
                  number.type() == at::kDouble ? at::kDouble : at::kLong));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

class ExecutionTest : public testing::Test {
 protected:
  ProgramTester tester_;
};

TEST_F(ExecutionTest, AddAndPromotion) {
  const at::Tensor a = Random({3, 4});
  tester_.ExpectLikeEager("aten::add", "Tensor", {a, Random({4}), 2});
  tester_.ExpectLikeEager("aten::add", "Tensor", {a, a.t().t(), 0.5});
  // A wrapped double does not promote float32, nor does a plain 0-dim double.
  // An integer tensor becomes float32 with the former and float64 with the
  // latter.
  const at::Tensor integers = at::arange(5);
  const auto outcome =
      tester_.ExpectLikeEager("aten::add", "Tensor", {integers, Wrapped(1.5)});
  EXPECT_EQ(outcome.results[0].view.data_type, srg::DataType::kFloat32);
  const auto plain = tester_.ExpectLikeEager(
      "aten::add", "Tensor",
      {integers,
       at::scalar_tensor(1.5, at::TensorOptions().dtype(at::kDouble))});
  EXPECT_EQ(plain.results[0].view.data_type, srg::DataType::kFloat64);
  tester_.ExpectLikeEager("aten::mul", "Scalar", {integers, 2.5});
  tester_.ExpectLikeEager("aten::mul", "Scalar", {integers, 2});
  tester_.ExpectLikeEager("aten::mul", "Scalar", {integers, true});
  tester_.ExpectLikeEager("aten::mul", "Scalar",
                          {Random({3}), IValue(c10::complex<double>(1, 2))});
}

// Returns the number of threads that OpenMP itself would use in this thread.
// The runtime is torch's own, which this test does not link.
int OpenMpThreads() {
  const auto ask =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  return ask == nullptr ? -1 : ask();
}

TEST_F(ExecutionTest, EveryThreadHasTheDevicesThreadCount) {
  const int configured = at::get_num_threads();
  at::set_num_threads(3);
  int used = 0;
  std::thread executor([&] {
    tester_.ExpectLikeEager("aten::mm", "", {Random({5, 7}), Random({7, 3})});
    used = OpenMpThreads();
  });
  executor.join();
  at::set_num_threads(configured);
  EXPECT_EQ(used, 3);
}

TEST_F(ExecutionTest, MatrixProducts) {
  tester_.ExpectLikeEager("aten::mm", "", {Random({5, 7}), Random({7, 3})});
  tester_.ExpectLikeEager("aten::mm", "", {Random({7, 5}).t(), Random({7, 3})});
  tester_.ExpectLikeEager("aten::bmm", "",
                          {Random({2, 3, 4}), Random({2, 4, 5})});
  tester_.ExpectLikeEager("aten::matmul", "", {Random({2, 3, 4}), Random({4})});
  tester_.ExpectLikeEager("aten::linear", "",
                          {Random({2, 3, 8}), Random({5, 8}), Random({5})});
  tester_.ExpectLikeEager("aten::linear", "", {Random({2, 8}), Random({5, 8})});
  tester_.ExpectLikeEager(
      "aten::einsum", "",
      {"bij,bjk->bik",
       c10::List<at::Tensor>({Random({2, 3, 4}), Random({2, 4, 5})})});
}

TEST_F(ExecutionTest, NormalisationAndActivations) {
  const at::Tensor x = Random({4, 6});
  tester_.ExpectLikeEager("aten::layer_norm", "",
                          {x, Ints{6}, Random({6}), Random({6}), 1e-5});
  const auto outcome = tester_.ExpectLikeEager(
      "aten::native_layer_norm", "", {x, Ints{6}, IValue(), IValue(), 1e-5});
  EXPECT_EQ(outcome.results.size(), 3u);
  tester_.ExpectLikeEager("aten::gelu", "", {x, "tanh"});
  tester_.ExpectLikeEager("aten::_softmax", "", {x, -1, false});
  tester_.ExpectLikeEager("aten::softmax", "int",
                          {x, -1, static_cast<int64_t>(at::kDouble)});
  tester_.ExpectLikeEager("aten::native_batch_norm", "",
                          {Random({4, 6, 5}), Random({6}), Random({6}),
                           at::zeros({6}), at::zeros({6}), true, 0.1, 1e-5});
}

TEST_F(ExecutionTest, BatchNormForwardAndBackward) {
  const at::Tensor x = Random({4, 6, 5});
  const at::Tensor w = Random({6});
  const at::Tensor zeros = at::zeros({6});
  for (const bool training : {true, false}) {
    const CallOutcome forward =
        tester_.ExpectLikeEager("aten::native_batch_norm", "",
                                {x, w, w, zeros, zeros, training, 0.1, 1e-5});
    ASSERT_EQ(forward.results.size(), 3u);
    tester_.ExpectLikeEager(
        "aten::native_batch_norm_backward", "",
        {Random({4, 6, 5}), x, w, zeros, zeros,
         ProgramTester::TensorOf(forward.results[1]),
         ProgramTester::TensorOf(forward.results[2]), training, 1e-5,
         c10::List<bool>({true, true, true})});
  }
  tester_.ExpectLikeEager(
      "aten::native_batch_norm", "",
      {x, IValue(), IValue(), IValue(), IValue(), true, 0.1, 1e-5});
}

TEST_F(ExecutionTest, WritesAndFreshResultsInOneCall) {
  const at::Tensor x = Random({4, 6, 5});
  const at::Tensor mean = Random({6}), var = at::ones({6});
  EXPECT_EQ(
      tester_
          .ExpectLikeEager("aten::_native_batch_norm_legit", "",
                           {x, IValue(), IValue(), mean, var, true, 0.1, 1e-5})
          .results.size(),
      3u);
  EXPECT_EQ(tester_
                .ExpectLikeEager("aten::_batch_norm_with_update", "",
                                 {x, IValue(), IValue(), mean, var, 0.1, 1e-5})
                .results.size(),
            4u);
  tester_.ExpectLikeEager("aten::batch_norm_update_stats", "",
                          {x, mean, var, 0.1});
  const at::Generator generator = at::detail::createCPUGenerator(3);
  tester_.ExpectLikeEager("aten::rrelu_with_noise", "",
                          {x, at::zeros({4, 6, 5}), 0.1, 0.3, true, generator});
  const at::Tensor on = at::ones({1}, at::kLong);
  tester_.ExpectLikeEager("aten::_fused_moving_avg_obs_fq_helper", "",
                          {x, on, on, Random({1}), Random({1}), at::ones({1}),
                           at::zeros({1}, at::kInt), 0.01, 0, 255, 0});
}

TEST_F(ExecutionTest, ReductionsWithSeveralResults) {
  const at::Tensor x = Random({4, 6});
  EXPECT_EQ(tester_.ExpectLikeEager("aten::max", "dim", {x, 1}).results.size(),
            2u);
  tester_.ExpectLikeEager("aten::sum", "dim_IntList", {x, Ints{0}, true});
  tester_.ExpectLikeEager("aten::sum", "dim_IntList", {x, IValue(), false});
  tester_.ExpectLikeEager("aten::topk", "", {x, 2});
  tester_.ExpectLikeEager("aten::sort", "", {x});
}

TEST_F(ExecutionTest, Convolution) {
  const at::Tensor x = Random({2, 3, 8, 8});
  const at::Tensor w = Random({4, 3, 3, 3});
  tester_.ExpectLikeEager("aten::convolution", "",
                          {x, w, Random({4}), Ints{1, 1}, Ints{1, 1},
                           Ints{1, 1}, false, Ints{0, 0}, 1});
  tester_.ExpectLikeEager("aten::max_pool2d", "", {x, Ints{2, 2}});
  tester_.ExpectLikeEager("aten::max_pool2d", "", {x, Ints{2}});
}

TEST_F(ExecutionTest, UndefinedResults) {
  const at::Tensor x = Random({2, 3, 8, 8});
  const at::Tensor w = Random({4, 3, 3, 3});
  const at::Tensor grad = Random({2, 4, 8, 8});
  for (const bool input : {true, false}) {
    const auto outcome = tester_.ExpectLikeEager(
        "aten::convolution_backward", "",
        {grad, x, w, Ints{4}, Ints{1, 1}, Ints{1, 1}, Ints{1, 1}, false,
         Ints{0, 0}, 1, c10::List<bool>({input, !input, !input})});
    ASSERT_EQ(outcome.results.size(), 3u);
    EXPECT_EQ(outcome.results[0].buffer != nullptr, input);
    EXPECT_EQ(outcome.results[1].buffer != nullptr, !input);
    EXPECT_EQ(outcome.results[2].buffer != nullptr, !input);
  }
}

TEST_F(ExecutionTest, Lists) {
  const at::Tensor a = Random({2, 3});
  tester_.ExpectLikeEager("aten::cat", "",
                          {c10::List<at::Tensor>({a, Random({4, 3}), a}), 0});
  // Tests None in a list, and an index that is a view.
  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(std::nullopt);
  indices.push_back(at::tensor(Ints{2, 0, 1, 1}).slice(0, 1));
  tester_.ExpectLikeEager("aten::index", "Tensor", {a, indices});
  tester_.ExpectLikeEager("aten::_foreach_add", "Scalar",
                          {c10::List<at::Tensor>({a, Random({7})}), 0.5});
  c10::List<at::Scalar> scalars;
  scalars.push_back(1.5);
  scalars.push_back(2);
  tester_.ExpectLikeEager("aten::_foreach_add_", "ScalarList",
                          {c10::List<at::Tensor>({a, Random({7})}), scalars});
}

TEST_F(ExecutionTest, InPlaceOnViewsOfOneStorage) {
  const at::Tensor base = at::arange(20, at::kFloat);
  tester_.ExpectLikeEager("aten::add_", "Tensor",
                          {base.slice(0, 0, 10), base.slice(0, 10, 20)});
  tester_.ExpectLikeEager("aten::copy_", "",
                          {base.slice(0, 0, 10, 2), base.slice(0, 10, 15)});
  tester_.ExpectLikeEager("aten::mul_", "Scalar", {base.view({4, 5}).t(), 3.0});
  tester_.ExpectLikeEager("aten::zero_", "", {base});
  tester_.ExpectLikeEager("aten::fill_", "Scalar", {base.slice(0, 3, 4), 7});
}

TEST_F(ExecutionTest, OutArguments) {
  const at::Tensor a = Random({3, 4});
  tester_.ExpectLikeEager("aten::add", "out",
                          {a, Random({3, 4}), 1, at::zeros({3, 4})});
  tester_.ExpectLikeEager(
      "aten::max", "dim_max",
      {a, 1, false, at::zeros({3}),
       at::zeros({3}, at::TensorOptions().dtype(at::kLong))});
}

TEST_F(ExecutionTest, AnOutputMustHaveItsSize) {
  const at::Tensor a = Random({3, 4});
  // An output that is too small cannot grow; one that is too large would
  // shrink.
  for (const int64_t size : {0, 2, 100}) {
    const EncodedCall call =
        tester_.Encode("aten::add", "out", {a, a, 1, at::zeros({size})}, {});
    const CallOutcome outcome = tester_.Run(call);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ErrorReason(outcome.status), "OPERATOR_FAILED");
    EXPECT_EQ(call.slots[1]->size_bytes(), static_cast<uint64_t>(size) * 4);
  }
}

TEST_F(ExecutionTest, ViewsAndUnchangedOperandsNameTheirSlot) {
  const at::Tensor a = Random({4, 6});
  const auto split = tester_.ExpectLikeEager("aten::split", "Tensor", {a, 2});
  ASSERT_EQ(split.results.size(), 2u);
  EXPECT_EQ(split.results[0].aliased_slot, 0u);
  EXPECT_EQ(split.results[1].aliased_slot, 0u);
  EXPECT_EQ(split.results[1].view.storage_offset, 12);
  const auto dropout =
      tester_.ExpectLikeEager("aten::dropout", "", {a, 0.5, false});
  EXPECT_EQ(dropout.results[0].aliased_slot, 0u);
  const auto relu = tester_.ExpectLikeEager("aten::relu", "", {a});
  EXPECT_EQ(relu.results[0].aliased_slot, std::nullopt);
}

TEST_F(ExecutionTest, LazyBits) {
  const at::Tensor z = at::randn({3, 4}, at::kComplexFloat);
  const auto conjugate = tester_.ExpectLikeEager("aten::_conj", "", {z});
  EXPECT_TRUE(conjugate.results[0].view.conjugate);
  EXPECT_EQ(conjugate.results[0].aliased_slot, 0u);
  tester_.ExpectLikeEager("aten::mm", "", {z.conj(), z.t()});
  tester_.ExpectLikeEager("aten::add", "Tensor",
                          {at::imag(z.conj()), at::real(z)});
}

// Checks that results that are windows onto one new storage get storages of
// their own.
TEST_F(ExecutionTest, ResultsOnOneFreshStorageAreParted) {
  c10::InferenceMode inference;
  const at::Tensor whole = at::arange(1, 25, at::kFloat);
  const std::vector<at::Tensor> tensors = {
      whole, whole.slice(0, 4, 8), whole.slice(0, 1, 24, 3),
      whole.slice(0, 2, 3).expand({2, 5}), at::zeros({1}).expand({7})};
  std::vector<NodeResult> results;
  ResultCollector collector({}, {}, /*uninitialised=*/false, CpuTarget(),
                            &results);
  for (const at::Tensor& tensor : tensors) {
    ASSERT_TRUE(collector.Add(tensor).ok());
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(results[i].aliased_slot, std::nullopt);
    EXPECT_TRUE(SameBits(ProgramTester::TensorOf(results[i]), tensors[i])) << i;
    EXPECT_EQ(results[i].view.storage_offset, tensors[i].storage_offset());
    EXPECT_EQ(results[i].view.strides[0], tensors[i].strides()[0]);
    EXPECT_EQ(results[i].buffer->size_bytes(), tensors[i].storage().nbytes());
  }
  // Bytes outside the result are not passed on: all but 4 floats are zero.
  const std::string bytes = ProgramTester::BytesOf(*results[1].buffer);
  EXPECT_EQ(bytes.substr(0, 16), std::string(16, '\0'));
  EXPECT_EQ(bytes.substr(32), std::string(64, '\0'));
}

TEST_F(ExecutionTest, WindowsOntoAFreshStorageHideTheRest) {
  // The operator returns a slice of what it computed.
  tester_.ExpectLikeEager("aten::trapezoid", "dx", {Random({3, 8}), 1});
  c10::InferenceMode inference;
  std::vector<NodeResult> results;
  ResultCollector collector({}, {}, /*uninitialised=*/false, CpuTarget(),
                            &results);
  ASSERT_TRUE(collector.Add(Random({4, 6}).slice(1, 1, 3)).ok());
  const std::string bytes = ProgramTester::BytesOf(*results[0].buffer);
  ASSERT_EQ(bytes.size(), 96u);
  EXPECT_EQ(bytes.substr(0, 4), std::string(4, '\0'));
  EXPECT_NE(bytes.substr(4, 8), std::string(8, '\0'));
  EXPECT_EQ(bytes.substr(12, 16), std::string(16, '\0'));
}

TEST_F(ExecutionTest, UninitialisedMemoryIsZeroed) {
  for (int i = 0; i < 20; ++i) {
    // The memory that malloc returns next was just in use.
    {
      const at::Tensor used = at::empty({1000}).fill_(3);
    }
    CallOutcome outcome = tester_.Run(
        tester_.Encode("aten::empty", "memory_format", {Ints{1000}, IValue()},
                       {at::empty({1000})}));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(ProgramTester::BytesOf(*outcome.results[0].buffer),
              std::string(4000, '\0'));
  }
}

TEST_F(ExecutionTest, EmptyTensors) {
  tester_.ExpectLikeEager("aten::add", "Tensor",
                          {at::empty({0}), at::empty({0})});
  tester_.ExpectLikeEager("aten::mm", "", {at::empty({0, 4}), Random({4, 3})});
  tester_.ExpectLikeEager("aten::sum", "", {at::empty({0, 3})});
}

TEST_F(ExecutionTest, DataDependentShapes) {
  tester_.ExpectLikeEager("aten::nonzero", "", {at::tensor(Ints{0, 3, 0, 4})});
}

TEST_F(ExecutionTest, FactoriesLandOnTheDevice) {
  tester_.ExpectLikeEager(
      "aten::full", "",
      {Ints{2, 3}, 1.5, IValue(), IValue(), c10::Device(c10::kCPU), false});
  tester_.ExpectLikeEager("aten::arange", "start_step", {0, 10, 2});
}

TEST_F(ExecutionTest, RecurrentLayersKeptWhole) {
  const at::Tensor w_ih = Random({16, 3});
  const at::Tensor w_hh = Random({16, 4});
  const auto outcome = tester_.ExpectLikeEager(
      "aten::lstm", "input",
      {Random({5, 2, 3}),
       c10::List<at::Tensor>({at::zeros({1, 2, 4}), at::zeros({1, 2, 4})}),
       c10::List<at::Tensor>({w_ih, w_hh, Random({16}), Random({16})}), true, 1,
       0.0, false, false, false});
  EXPECT_EQ(outcome.results.size(), 3u);
}

TEST_F(ExecutionTest, FailuresHavePyTorchsText) {
  const absl::Status sizes = tester_.ExpectFailsLikeEager(
      "aten::mm", "", {Random({2, 3}), Random({4, 5})});
  EXPECT_EQ(sizes.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(sizes), "OPERATOR_FAILED");
  EXPECT_EQ(sizes.message(),
            "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)");
  for (const int64_t index : {int64_t{-1}, int64_t{10}, INT64_MAX}) {
    const absl::Status range = tester_.ExpectFailsLikeEager(
        "aten::embedding", "", {Random({10, 4}), at::tensor(Ints{1, index})});
    EXPECT_EQ(ErrorReason(range), "OPERATOR_FAILED");
  }
  const absl::Status promotion = tester_.ExpectFailsLikeEager(
      "aten::add_", "Tensor", {at::arange(3), Random({3})});
  EXPECT_EQ(ErrorReason(promotion), "OPERATOR_FAILED");
}

TEST_F(ExecutionTest, OutOfMemoryIsSaidSo) {
  const CallOutcome outcome = tester_.Run(tester_.Encode(
      "aten::zeros", "", {Ints{int64_t{1} << 40}}, {at::zeros({1})}));
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(outcome.status), "OUT_OF_MEMORY");
}

TEST_F(ExecutionTest, AWindowOutsideItsStorageIsRefused) {
  EncodedCall call =
      tester_.Encode("aten::relu", "", {Random({8})}, {Random({8})});
  call.slots[0] = tester_.device()->Allocate(31).value();
  const CallOutcome outcome = tester_.Run(call);
  EXPECT_EQ(ErrorReason(outcome.status), "INVALID_VIEW");
}

// Runs the call and returns the number of compute threads that its kernel had.
int ThreadsOf(ProgramTester& tester, const EncodedCall& call, bool fast) {
  thread_local int threads;
  threads = 0;
  const auto callback = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        threads = at::get_num_threads();
        return nullptr;
      }));
  const auto program = tester.library()->Compile(call.graph).value();
  NodeInput input = call.input();
  input.fast = fast;
  std::vector<NodeResult> results;
  EXPECT_TRUE(program->Execute(0, input, &results).ok());
  at::removeCallback(callback);
  return threads;
}

TEST_F(ExecutionTest, FastModeExecutesSmallCallsByOneThread) {
  const auto add = [&](int64_t elements) {
    const at::Tensor a = Random({elements});
    return tester_.Encode("aten::add", "Tensor", {a, a, 1},
                          {Random({elements})});
  };
  const auto product = [&](int64_t rows) {
    return tester_.Encode("aten::mm", "",
                          {Random({rows, 64}), Random({64, 64})},
                          {Random({rows, 64})});
  };
  EXPECT_EQ(ThreadsOf(tester_, add(1 << 10), /*fast=*/true), 1);
  EXPECT_EQ(ThreadsOf(tester_, add(1 << 10), /*fast=*/false), 2);
  EXPECT_EQ(ThreadsOf(tester_, add(1 << 19), /*fast=*/true), 2);
  EXPECT_EQ(ThreadsOf(tester_, product(8), /*fast=*/true), 1);
  EXPECT_EQ(ThreadsOf(tester_, product(4096), /*fast=*/true), 2);
}

TEST_F(ExecutionTest, RepeatedStrictRunsReturnPyTorchsBits) {
  const c10::InferenceMode inference;
  const at::Tensor weight = Random({784, 128});
  const at::Tensor bias = Random({128});
  const auto linear =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::addmm", "");
  const EncodedCall call =
      tester_.Encode("aten::addmm", "", {bias, Random({8, 784}), weight, 1, 1},
                     {Random({8, 128})});
  const auto program = tester_.library()->Compile(call.graph).value();
  constexpr size_t kRowsSlot = 1;
  for (int i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    const at::Tensor rows = Random({8, 784});
    ASSERT_TRUE(tester_.device()
                    ->Write(call.slots[kRowsSlot].get(), 0,
                            {static_cast<const char*>(rows.const_data_ptr()),
                             rows.nbytes()})
                    .ok());
    torch::jit::Stack stack = {bias, rows, weight, 1, 1};
    linear.callBoxed(&stack);
    std::vector<NodeResult> results;
    ASSERT_TRUE(program->Execute(0, call.input(), &results).ok());
    EXPECT_TRUE(
        SameBits(ProgramTester::TensorOf(results[0]), stack[0].toTensor()));
  }
}

}  // namespace
}  // namespace djinn::worker
