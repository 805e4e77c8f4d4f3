// Tiers that are left out, and what a device knows from the one before it.
#include "gpu_worker/device/cpu/cpu_tiers.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/softmax.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/cpu/packed_kernel.h"
#include "gpu_worker/device/cpu/product_table.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gpu_worker/device/cpu/torch_program.h"
#include "gpu_worker/device/cpu/trial_pace.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Counts who looks at it, and those that one thread of the kernels' does. To it
// whatever is timed later takes less time: the last way is chosen.
class WatchedClock final : public FakeClock {
 public:
  absl::Duration Monotonic() override {
    ++looks_;
    alone_ += at::get_num_threads() == 1;
    now_ += step_;
    step_ *= 0.98;
    return now_;
  }
  int looks() const { return looks_; }
  int alone() const { return alone_; }

 private:
  int looks_ = 0, alone_ = 0;
  absl::Duration now_;
  absl::Duration step_ = absl::Hours(24 * 365);
};

// A device, and calls that it carries out again and again.
class Process {
 public:
  explicit Process(CpuTiers tiers, const std::string& facts_file = "",
                   bool packed_weights = true)
      : tester_({.packed_weights = packed_weights,
                 .tiers = tiers,
                 .facts_file = facts_file,
                 .clock = &clock_}) {
    at::manual_seed(5);
    const at::Tensor rows = at::randn({64, 48}), weight = at::randn({40, 48});
    Add("aten::linear", "", {rows, weight, at::randn({40})},
        at::linear(rows, weight));
    const at::Tensor x = at::randn({64, 64});
    Add("aten::softmax", "int", {x, int64_t{1}}, at::softmax(x, 1));
    Add("aten::mm", "", {rows, weight.t()}, at::mm(rows, weight.t()));
    before_ = clock_.looks();
  }

  // Their results.
  std::vector<std::string> Run(bool fast, int times = 1) {
    std::vector<std::string> bytes;
    for (int i = 0; i < times; ++i) {
      bytes.clear();
      for (size_t c = 0; c < calls_.size(); ++c) {
        NodeInput input = calls_[c].input();
        input.fast = fast;
        std::vector<NodeResult> results;
        EXPECT_TRUE(programs_[c]->Execute(0, input, &results).ok());
        bytes.push_back(ProgramTester::BytesOf(*results[0].buffer));
      }
    }
    return bytes;
  }
  const CpuCall& call(size_t index) const {
    return dynamic_cast<const TorchProgram&>(*programs_[index]).call(0);
  }
  int looks() const { return clock_.looks() - before_; }
  int alone() const { return clock_.alone(); }

 private:
  void Add(const std::string& name, const std::string& overload,
           torch::jit::Stack arguments, const at::Tensor& result) {
    calls_.push_back(
        tester_.Encode(name, overload, std::move(arguments), {result}));
    programs_.push_back(
        tester_.library()->Compile(calls_.back().structure).value());
  }

  WatchedClock clock_;
  ProgramTester tester_;
  std::vector<EncodedCall> calls_;
  std::vector<std::unique_ptr<CompiledProgram>> programs_;
  int before_ = 0;
};

// As many as are tried before everything is settled.
constexpr int kSettled = 200;

TEST(CpuTiersTest, AllAreThere) {
  if (BestPackedKernel() == nullptr) GTEST_SKIP() << "no packed kernel here";
  Process process({});
  EXPECT_NE(process.call(0).strict_product, nullptr);
  EXPECT_NE(process.call(1).alone, nullptr);
  process.Run(/*fast=*/true, kSettled);
  EXPECT_GT(process.alone(), 0);
}

TEST(CpuTiersTest, WithoutStrictProductsNoneIsTried) {
  Process process({.strict_products = false});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(process.call(i).strict_product, nullptr);
    EXPECT_FALSE(process.call(i).parted.has_value());
  }
  EXPECT_NE(process.call(1).alone, nullptr);
}

TEST(CpuTiersTest, WithoutThreadTrialsAllThreadsCarryOutEveryCall) {
  Process process({.thread_trials = false});
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(process.call(i).alone, nullptr);
  process.Run(/*fast=*/true, kSettled);
  process.Run(/*fast=*/false, kSettled);
  EXPECT_GT(process.looks(), 0);
  EXPECT_EQ(process.alone(), 0);
}

// Every look at it takes a second.
class SlowClock final : public FakeClock {
 public:
  absl::Duration Monotonic() override {
    Advance(absl::Seconds(1));
    return FakeClock::Monotonic();
  }
};

TEST(CpuTiersTest, AfterATrialAnotherProductWaitsForItsOwn) {
  if (BestPackedKernel() == nullptr) GTEST_SKIP() << "no packed kernel here";
  SlowClock clock;
  ProgramTester tester(&clock);
  std::vector<EncodedCall> calls;
  std::vector<std::unique_ptr<CompiledProgram>> programs;
  for (const int64_t width : {40, 56}) {
    const at::Tensor rows = at::randn({64, 48}),
                     weight = at::randn({48, width});
    calls.push_back(
        tester.Encode("aten::mm", "", {rows, weight}, {at::mm(rows, weight)}));
    programs.push_back(
        tester.library()->Compile(calls.back().structure).value());
  }
  const auto run = [&](size_t index) {
    std::vector<NodeResult> results;
    EXPECT_TRUE(
        programs[index]->Execute(0, calls[index].input(), &results).ok());
  };
  const auto is_tried = [&](size_t index) {
    const auto& program = dynamic_cast<const TorchProgram&>(*programs[index]);
    return program.call(0).strict_product->facts() != nullptr;
  };
  for (uint32_t i = 0; i < StrictProduct::kRuns; ++i) {
    run(0);
    run(1);
  }
  EXPECT_FALSE(is_tried(0));
  run(0);
  EXPECT_TRUE(is_tried(0));
  run(1);
  EXPECT_FALSE(is_tried(1));
  clock.Advance(absl::Seconds(TrialPace::kRest));
  run(1);
  EXPECT_TRUE(is_tried(1));
}

class RestartTest : public testing::Test {
 protected:
  RestartTest() { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "/processor_facts";
};

TEST_F(RestartTest, ARestartedDeviceTriesNothingOfWhatItKnows) {
  {
    Process process({}, path_, /*packed_weights=*/false);
    process.Run(/*fast=*/true, kSettled);
    EXPECT_GT(process.looks(), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path_));
  Process process({}, path_, /*packed_weights=*/false);
  process.Run(/*fast=*/true, 30);
  EXPECT_EQ(process.looks(), 0);
}

TEST_F(RestartTest, StrictBitsAreCheckedAsEver) {
  std::vector<std::string> expected;
  {
    Process process({}, path_);
    expected = process.Run(/*fast=*/false, kSettled);
  }
  Process process({}, path_);
  const StrictProduct* const product = process.call(0).strict_product.get();
  if (product == nullptr) GTEST_SKIP() << "no packed kernel here";
  ASSERT_NE(product->hint(), nullptr);
  const ProductFacts hint = *product->hint();
  if (hint.order.has_value() || hint.alone_is_equal) {
    // Nothing is taken for equal before it was seen to be.
    EXPECT_EQ(product->facts(), nullptr);
  }
  EXPECT_EQ(process.Run(/*fast=*/false), expected);
  ASSERT_NE(product->facts(), nullptr);
  EXPECT_EQ(product->facts()->order, hint.order);
  EXPECT_EQ(product->facts()->alone_is_equal, hint.alone_is_equal);
  EXPECT_EQ(process.Run(/*fast=*/false, 30), expected);
}

TEST_F(RestartTest, OtherTiersLearnAnew) {
  {
    Process process({}, path_, /*packed_weights=*/false);
    process.Run(/*fast=*/true, kSettled);
  }
  Process process({.thread_trials = false}, path_, /*packed_weights=*/false);
  process.Run(/*fast=*/true, 30);
  EXPECT_GT(process.looks(), 0);
}

}  // namespace
}  // namespace djinn::worker
