// Products by way of packed weights: what they give, and that no change of a
// weight, however it is made, leaves an old form in use.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/addmm.h"
#include "ATen/ops/allclose.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "c10/core/InferenceMode.h"
#include "c10/core/Storage.h"
#include "common/clock.h"
#include "common/error.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/cpu/packed_kernel.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr int64_t kIn = 48, kOut = 40, kRows = 64;
// Runs after which the weight is packed, and both ways were tried and chosen.
constexpr int kSettled = 100;

class CountingSpareMemory final : public SpareMemory {
 public:
  std::shared_ptr<void> Reserve(const std::string&, uint64_t bytes) override {
    *used_ += bytes;
    return std::shared_ptr<void>(
        used_.get(), [used = used_, bytes](void*) { *used -= bytes; });
  }
  uint64_t used() const { return *used_; }

 private:
  const std::shared_ptr<uint64_t> used_ = std::make_shared<uint64_t>(0);
};

// To it whatever is timed later takes less time, so that of the ways to carry
// out a call the one that is measured last is chosen.
class LaterIsFasterClock final : public FakeClock {
 public:
  absl::Duration Monotonic() override {
    now_ += step_;
    step_ *= 0.98;
    return now_;
  }

 private:
  absl::Duration now_;
  absl::Duration step_ = absl::Hours(24 * 365);
};

// A call that can be made again and again on buffers of choice.
struct Program {
  EncodedCall call;
  std::unique_ptr<CompiledProgram> compiled;
};

class PackedExecutionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (BestPackedKernel() == nullptr) GTEST_SKIP() << "no packed kernel here";
    tester_.device()->SetSpareMemory(&spare_);
  }
  void TearDown() override { tester_.device()->SetSpareMemory(nullptr); }

  Program Compile(const std::string& name, const std::string& overload,
                  torch::jit::Stack arguments) {
    const c10::InferenceMode inference;
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        name.c_str(), overload.c_str());
    arguments = WithDefaults(op, std::move(arguments));
    torch::jit::Stack stack = arguments;
    for (c10::IValue& value : stack) {
      if (value.isTensor()) value = value.toTensor().clone();
    }
    op.callBoxed(&stack);
    std::vector<at::Tensor> results;
    if (op.schema().returns()[0].alias_info() == nullptr) {
      results.push_back(stack[0].toTensor());
    }
    Program program;
    program.call = tester_.Encode(name, overload, arguments, results);
    program.compiled =
        tester_.library()->Compile(program.call.structure).value();
    return program;
  }

  // rows * weight.t() + bias, each of its own storage.
  Program Linear(const at::Tensor& rows, const at::Tensor& weight,
                 const at::Tensor& bias) {
    return Compile("aten::linear", "", {rows, weight, bias});
  }

  static absl::Status Execute(const Program& program,
                              std::vector<NodeResult>* results,
                              bool fast = true) {
    NodeInput input = program.call.input();
    input.fast = fast;
    return program.compiled->Execute(0, input, results);
  }

  // The fast run's result; expects the strict one to be close.
  at::Tensor Run(const Program& program) {
    const c10::InferenceMode inference;
    std::vector<NodeResult> fast, strict;
    EXPECT_TRUE(Execute(program, &fast).ok());
    EXPECT_TRUE(Execute(program, &strict, /*fast=*/false).ok());
    if (fast.size() != 1 || strict.size() != 1) {
      ADD_FAILURE() << "no results";
      return at::Tensor();
    }
    EXPECT_EQ(fast[0].view, strict[0].view);
    const at::Tensor result = ProgramTester::TensorOf(fast[0]).clone();
    EXPECT_TRUE(
        at::allclose(result, ProgramTester::TensorOf(strict[0]), 1e-4, 1e-4));
    return result;
  }

  // Runs until the weight is packed for good.
  void Settle(const Program& program) {
    for (int i = 0; i < kSettled; ++i) Run(program);
    EXPECT_GT(spare_.used(), 0u);
  }

  CountingSpareMemory spare_;
  LaterIsFasterClock clock_;
  ProgramTester tester_{&clock_};
};

// Slots in the order of linear's arguments.
constexpr size_t kWeightSlot = 1;

TEST_F(PackedExecutionTest, ProductsOfEveryKindGiveWhatPyTorchGives) {
  const at::Tensor rows = at::randn({kRows, kIn});
  const at::Tensor weight = at::randn({kOut, kIn});
  const at::Tensor bias = at::randn({kOut});
  const at::Tensor wide = at::randn({kIn, kOut});
  const std::vector<Program> programs = [&] {
    std::vector<Program> list;
    list.push_back(Linear(rows, weight, bias));
    list.push_back(Compile("aten::linear", "", {rows, weight, c10::IValue()}));
    list.push_back(Linear(at::randn({2, 3, kIn}), weight, bias));
    list.push_back(Compile("aten::addmm", "", {bias, rows, weight.t()}));
    list.push_back(Compile("aten::addmm", "", {bias, rows, wide}));
    list.push_back(Compile("aten::mm", "", {rows, wide}));
    list.push_back(Compile("aten::mm", "", {rows, weight.t()}));
    list.push_back(Compile("aten::matmul", "", {at::randn({2, 3, kIn}), wide}));
    // Rows of a wider matrix.
    list.push_back(Compile(
        "aten::mm", "", {at::randn({kRows, 2 * kIn}).narrow(1, 3, kIn), wide}));
    return list;
  }();
  uint64_t before = 0;
  for (const Program& program : programs) {
    Settle(program);
    EXPECT_GT(spare_.used(), before);
    before = spare_.used();
  }
}

// What the packed kernels do not know stays PyTorch's.
TEST_F(PackedExecutionTest, OtherProductsAreLeftAlone) {
  const at::Tensor rows = at::randn({kRows, kIn});
  const at::Tensor weight = at::randn({kOut, kIn});
  std::vector<Program> programs;
  programs.push_back(
      Compile("aten::addmm", "", {at::randn({kOut}), rows, weight.t(), 2, 1}));
  programs.push_back(Compile("aten::addmm", "",
                             {at::randn({kOut}), rows, weight.t(), 1, 0.5}));
  programs.push_back(
      Compile("aten::addmm", "", {at::randn({kRows, kOut}), rows, weight.t()}));
  programs.push_back(
      Compile("aten::mm", "", {at::randn({kIn, kRows}).t(), weight.t()}));
  programs.push_back(Compile(
      "aten::mm", "", {rows.to(at::kDouble), weight.to(at::kDouble).t()}));
  programs.push_back(
      Compile("aten::linear", "", {at::randn({kIn}), weight, at::randn(kOut)}));
  programs.push_back(
      Compile("aten::mm", "",
              {rows, at::randn({kIn, 2 * kOut}).slice(1, 0, 2 * kOut, 2)}));
  // Many columns that are one, and such as overlap.
  programs.push_back(
      Compile("aten::mm", "", {rows, at::randn({kIn, 1}).expand({kIn, kOut})}));
  programs.push_back(
      Compile("aten::mm", "",
              {rows, at::randn({2 * kIn}).as_strided({kIn, kOut}, {1, 1}, 0)}));
  for (const Program& program : programs) {
    for (int i = 0; i < kSettled; ++i) Run(program);
  }
  EXPECT_EQ(spare_.used(), 0u);
}

// Rows that are few and many, depths of one block and more, and of parts.
TEST_F(PackedExecutionTest, StrictRunsGiveEveryBitOfPyTorch) {
  const c10::InferenceMode inference;
  int own = 0;
  for (const int64_t rows : {1, 2, 8, 16, 33}) {
    for (const int64_t depth : {48, 392, 784, 1100}) {
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(absl::StrCat(rows, " x ", depth, " ", transposed));
        const at::Tensor weight = transposed ? at::randn({kOut, depth}).t()
                                             : at::randn({depth, kOut});
        const torch::jit::Stack arguments = {
            at::randn({kOut}), at::randn({rows, depth}), weight, 1, 1};
        Program program = Compile("aten::addmm", "", arguments);
        const at::Tensor expected =
            at::addmm(arguments[0].toTensor(), arguments[1].toTensor(), weight);
        for (int i = 0; i < kSettled; ++i) {
          NodeInput input = program.call.input();
          NodeWay way = NodeWay::kPlain;
          input.way = &way;
          std::vector<NodeResult> results;
          ASSERT_TRUE(program.compiled->Execute(0, input, &results).ok());
          ASSERT_TRUE(SameBits(ProgramTester::TensorOf(results[0]), expected));
          own += way == NodeWay::kPacked;
        }
      }
    }
  }
  // How many depends on how this processor's MKL sums up.
  RecordProperty("own_kernel_runs", own);
}

// By an operator, wholly and in part, as an optimiser and a load do.
TEST_F(PackedExecutionTest, AWeightWrittenByAnOperatorIsPackedAnew) {
  Program linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                          at::randn({kOut}));
  const at::Tensor shape = at::randn({kOut, kIn});
  std::vector<Program> writes;
  writes.push_back(Compile("aten::mul_", "Scalar", {shape, 2.0}));
  writes.push_back(Compile("aten::copy_", "", {shape, at::randn({kOut, kIn})}));
  writes.push_back(
      Compile("aten::copy_", "", {shape.narrow(0, 5, 1), at::randn({kIn})}));
  writes.push_back(Compile("aten::fill_", "Scalar", {shape.select(1, 3), 4.0}));
  writes.push_back(Compile("aten::addmm", "out",
                           {at::randn({kIn}), at::randn({kOut, 3}),
                            at::randn({3, kIn}), 1, 1, shape}));
  for (Program& write : writes) {
    Settle(linear);
    const at::Tensor before = Run(linear);
    const size_t written = write.call.structure.nodes[0].writes[0];
    write.call.slots[written] = linear.call.slots[kWeightSlot];
    std::vector<NodeResult> results;
    ASSERT_TRUE(Execute(write, &results).ok());
    EXPECT_EQ(spare_.used(), 0u);
    EXPECT_FALSE(at::allclose(Run(linear), before));
    // Room for the next one: a new weight.
    linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                    at::randn({kOut}));
  }
}

TEST_F(PackedExecutionTest, AWeightThatFailsToBeWrittenIsPackedAnew) {
  const Program linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                                at::randn({kOut}));
  Settle(linear);
  Program write =
      Compile("aten::index_fill_", "int_Scalar",
              {at::randn({kOut, kIn}), 0, at::ones({1}, at::kLong), 1.0});
  write.call.slots[0] = linear.call.slots[kWeightSlot];
  const int64_t outside = 1000;
  ASSERT_TRUE(tester_.device()
                  ->Write(write.call.slots[1].get(), 0,
                          {reinterpret_cast<const char*>(&outside), 8})
                  .ok());
  std::vector<NodeResult> results;
  ASSERT_FALSE(Execute(write, &results).ok());
  EXPECT_EQ(spare_.used(), 0u);
  Run(linear);
}

TEST_F(PackedExecutionTest, AWeightWrittenByAnUploadIsPackedAnew) {
  const Program linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                                at::randn({kOut}));
  Settle(linear);
  const at::Tensor before = Run(linear);
  const float one = 100;
  ASSERT_TRUE(tester_.device()
                  ->Write(linear.call.slots[kWeightSlot].get(), 400,
                          {reinterpret_cast<const char*>(&one), sizeof(one)})
                  .ok());
  EXPECT_EQ(spare_.used(), 0u);
  EXPECT_FALSE(at::allclose(Run(linear), before));
}

TEST_F(PackedExecutionTest, AnotherStorageInTheBindingIsAnotherWeight) {
  Program linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                          at::randn({kOut}));
  Settle(linear);
  const std::shared_ptr<Buffer> first = linear.call.slots[kWeightSlot];
  const Program other = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                               at::randn({kOut}));
  const at::Tensor before = Run(linear);
  // Unpacked at first, packed in the end; in turn.
  for (int i = 0; i < kSettled; ++i) {
    linear.call.slots[kWeightSlot] = other.call.slots[kWeightSlot];
    EXPECT_FALSE(at::allclose(Run(linear), before));
    linear.call.slots[kWeightSlot] = first;
    EXPECT_TRUE(at::allclose(Run(linear), before, 1e-4, 1e-4));
  }
}

// As when an allocator gives a freed weight's memory to the next.
TEST_F(PackedExecutionTest, MemoryThatIsUsedAgainIsAnotherWeight) {
  Program linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                          at::randn({kOut}));
  std::shared_ptr<Buffer>& slot = linear.call.slots[kWeightSlot];
  std::string bytes = ProgramTester::BytesOf(*slot);
  std::vector<float> memory(kOut * kIn);
  ASSERT_EQ(memory.size() * sizeof(float), bytes.size());
  for (int round = 0; round < 20; ++round) {
    slot.reset();
    EXPECT_EQ(spare_.used(), 0u);
    std::memcpy(memory.data(), bytes.data(), bytes.size());
    slot = std::make_shared<TorchBuffer>(
        c10::Storage(c10::Storage::use_byte_size_t(), bytes.size(),
                     c10::DataPtr(memory.data(), c10::DeviceType::CPU),
                     /*allocator=*/nullptr, /*resizable=*/false));
    Run(linear);
    Settle(linear);
    bytes[3 + 4 * round] ^= 0x7f;
  }
}

// As when a content is written that others hold, too.
TEST_F(PackedExecutionTest, ACopyHasFormsOfItsOwn) {
  Program linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                          at::randn({kOut}));
  Settle(linear);
  const at::Tensor before = Run(linear);
  std::shared_ptr<Buffer>& slot = linear.call.slots[kWeightSlot];
  const std::shared_ptr<Buffer> shared = slot;
  slot = tester_.device()->Clone(*shared, shared->size_bytes()).value();
  Program write =
      Compile("aten::mul_", "Scalar", {at::randn({kOut, kIn}), 2.0});
  write.call.slots[0] = slot;
  std::vector<NodeResult> results;
  ASSERT_TRUE(Execute(write, &results).ok());
  write.call.slots[0].reset();
  // The original's form is as good as ever.
  EXPECT_GT(spare_.used(), 0u);
  EXPECT_FALSE(at::allclose(Run(linear), before));
  const std::shared_ptr<Buffer> copy = std::exchange(slot, shared);
  EXPECT_TRUE(at::allclose(Run(linear), before, 1e-4, 1e-4));
}

TEST_F(PackedExecutionTest, AnotherViewOfTheStorageIsAnotherWeight) {
  constexpr int64_t kSide = 40;
  const at::Tensor rows = at::randn({kRows, kSide});
  const at::Tensor storage = at::randn({3 * kSide * kSide});
  const auto view = [&](int64_t offset, int64_t first, int64_t second) {
    return storage.as_strided({kSide, kSide}, {first, second}, offset);
  };
  std::vector<Program> programs;
  for (const at::Tensor& weight :
       {view(0, kSide, 1), view(0, 1, kSide), view(7, kSide, 1),
        view(0, kSide + 1, 1), view(0, 2 * kSide, 1)}) {
    Program program = Compile("aten::mm", "", {rows, weight});
    if (!programs.empty()) program.call.slots = programs[0].call.slots;
    programs.push_back(std::move(program));
  }
  uint64_t most = 0;
  for (int i = 0; i < kSettled; ++i) {
    for (const Program& program : programs) Run(program);
    most = std::max(most, spare_.used());
  }
  EXPECT_GT(most, 4 * kSide * kSide * sizeof(float));
}

TEST_F(PackedExecutionTest, ASmallerStorageFailsAsEver) {
  Program linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                          at::randn({kOut}));
  Settle(linear);
  for (size_t slot = 0; slot < 3; ++slot) {
    const std::shared_ptr<Buffer> whole = linear.call.slots[slot];
    linear.call.slots[slot] =
        tester_.device()->Clone(*whole, whole->size_bytes() - 4).value();
    std::vector<NodeResult> results;
    const absl::Status fast = Execute(linear, &results);
    const absl::Status strict = Execute(linear, &results, /*fast=*/false);
    EXPECT_EQ(ErrorReason(fast), "INVALID_VIEW");
    EXPECT_EQ(fast, strict);
    EXPECT_TRUE(results.empty());
    linear.call.slots[slot] = whole;
  }
  Run(linear);
}

TEST_F(PackedExecutionTest, ACallThatFailsSaysWhatPyTorchSays) {
  const at::Tensor rows = at::randn({kRows, kIn});
  EncodedCall call = tester_.Encode(
      "aten::linear", "", {rows, at::randn({kOut, kIn + 1}), at::randn({kOut})},
      {at::randn({kRows, kOut})});
  const auto program = tester_.library()->Compile(call.structure).value();
  NodeInput input = call.input();
  std::vector<NodeResult> results;
  const absl::Status strict = program->Execute(0, input, &results);
  input.fast = true;
  const absl::Status fast = program->Execute(0, input, &results);
  EXPECT_FALSE(strict.ok());
  EXPECT_EQ(fast, strict);
}

TEST_F(PackedExecutionTest, UnderPressureTheFormGoesAndTheResultStays) {
  const Program linear = Linear(at::randn({kRows, kIn}), at::randn({kOut, kIn}),
                                at::randn({kOut}));
  Settle(linear);
  EXPECT_GT(tester_.device()->ReleaseSpareMemory(1), 0u);
  EXPECT_EQ(spare_.used(), 0u);
  Run(linear);
}

TEST(PackedSwitchTest, CanBeTurnedOff) {
  const std::unique_ptr<Device> device =
      MakeCpuDevice({.threads = 1, .packed_weights = false}).value();
  CountingSpareMemory spare;
  device->SetSpareMemory(&spare);
  ProgramTester tester;
  const EncodedCall call = tester.Encode(
      "aten::linear", "",
      {at::randn({kRows, kIn}), at::randn({kOut, kIn}), at::randn({kOut})},
      {at::randn({kRows, kOut})});
  const auto program = device->operators()->Compile(call.structure).value();
  NodeInput input = call.input();
  input.fast = true;
  for (int i = 0; i < kSettled; ++i) {
    std::vector<NodeResult> results;
    ASSERT_TRUE(program->Execute(0, input, &results).ok());
  }
  EXPECT_EQ(spare.used(), 0u);
  device->SetSpareMemory(nullptr);
}

// Everything that can happen to a few weights, in random order.
TEST_F(PackedExecutionTest, NoChangeInAnyOrderLeavesAnOldForm) {
  constexpr int64_t kSide = 40;
  constexpr int kBuffers = 3;
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  const at::Tensor rows = at::randn({kRows, kSide});
  const at::Tensor storage = at::randn({2 * kSide * kSide});
  const std::vector<at::Tensor> views = {
      storage.as_strided({kSide, kSide}, {kSide, 1}, 0),
      storage.as_strided({kSide, kSide}, {1, kSide}, 0),
      storage.as_strided({kSide, kSide}, {kSide, 1}, kSide * kSide)};
  std::vector<Program> products, writes;
  for (const at::Tensor& view : views) {
    products.push_back(Compile("aten::mm", "", {rows, view}));
    writes.push_back(
        Compile("aten::mul_", "Scalar", {view.select(0, 2), -3.0}));
  }
  std::vector<std::shared_ptr<Buffer>> weights;
  for (int i = 0; i < kBuffers; ++i) {
    weights.push_back(tester_.device()
                          ->Clone(*products[0].call.slots[1], storage.nbytes())
                          .value());
  }
  uint64_t packed = 0;
  for (int step = 0; step < 6000; ++step) {
    std::shared_ptr<Buffer>& weight = weights[below(kBuffers)];
    switch (below(400)) {
      case 0: {
        Program& write = writes[below(static_cast<int>(writes.size()))];
        write.call.slots[0] = weight;
        std::vector<NodeResult> results;
        ASSERT_TRUE(Execute(write, &results).ok());
        write.call.slots[0].reset();
        break;
      }
      case 1: {
        const float value = static_cast<float>(below(100));
        ASSERT_TRUE(tester_.device()
                        ->Write(weight.get(), 4 * below(2 * kSide * kSide),
                                {reinterpret_cast<const char*>(&value), 4})
                        .ok());
        break;
      }
      case 2:
        weight = tester_.device()->Clone(*weight, storage.nbytes()).value();
        break;
      case 3:
        std::swap(weights[0], weights[below(kBuffers)]);
        break;
      case 4:
        packed += tester_.device()->ReleaseSpareMemory(1);
        break;
      default: {
        Program& product = products[below(static_cast<int>(products.size()))];
        product.call.slots[1] = weight;
        Run(product);
        product.call.slots[1].reset();
        if (HasFailure()) FAIL() << "step " << step;
      }
    }
    packed += spare_.used();
  }
  EXPECT_GT(packed, 0u);
}

}  // namespace
}  // namespace djinn::worker
