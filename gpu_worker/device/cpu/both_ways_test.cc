#include "gpu_worker/device/cpu/both_ways.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "gpu_worker/device/torch/torch_buffer.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr size_t kFloats = 64;

std::shared_ptr<Buffer> MakeBuffer(float first, size_t floats = kFloats) {
  c10::Storage storage = UninitialisedStorage(floats * sizeof(float));
  auto* const data = static_cast<float*>(storage.mutable_data());
  for (size_t i = 0; i < floats; ++i)
    data[i] = first + 0.1f * static_cast<float>(i);
  return std::make_shared<TorchBuffer>(std::move(storage));
}

float FirstOf(const Buffer& buffer) {
  return *reinterpret_cast<const float*>(
      static_cast<const TorchBuffer&>(buffer).data());
}

class BothWaysTest : public testing::Test {
 protected:
  BothWaysTest() { at::set_num_threads(2); }

  // A run that is to compare adds one to slot 0, in place, and returns as much.
  // In the trial's second part, with one thread, it adds `off` besides.
  absl::Status Run(float off = 0) {
    NodeInput input;
    input.slots = slots_;
    results_.clear();
    const auto run = [&](bool alone, const NodeInput& given,
                         std::vector<NodeResult>* results) {
      EXPECT_EQ(at::get_num_threads() == 1, alone);
      ++(alone ? alone_ : together_);
      const auto& buffer = static_cast<const TorchBuffer&>(*given.slots[0]);
      if (given.slots[0] != slots_[0]) given_.push_back(FirstOf(buffer));
      *reinterpret_cast<float*>(buffer.data()) += 1 + (alone ? off : 0);
      if (!(alone ? alone_fails_ : together_fails_).ok()) {
        return alone ? alone_fails_ : together_fails_;
      }
      NodeResult result;
      result.buffer = MakeBuffer(FirstOf(buffer), result_floats_);
      result.view.data_type = srg::DataType::kFloat32;
      results->push_back(std::move(result));
      return absl::OkStatus();
    };
    return CarryOutBothWays(
        {{0, srg::DataType::kFloat32}}, {0}, input,
        [&](const NodeInput& given, std::vector<NodeResult>* results) {
          return run(/*alone=*/false, given, results);
        },
        [&](const NodeInput& given, std::vector<NodeResult>* results) {
          return run(/*alone=*/true, given, results);
        },
        &trial_, &results_);
  }

  // Runs as often as it takes to decide.
  AloneTrial::Way Decide(float off = 0) {
    for (uint32_t i = 0; i < AloneTrial::kRuns; ++i) trial_.Next();
    for (int i = 0; i < AloneTrial::kComparisons; ++i) {
      if (trial_.Next() != AloneTrial::Way::kBoth) break;
      EXPECT_TRUE(Run(off).ok());
    }
    return trial_.Next();
  }

  std::vector<std::shared_ptr<Buffer>> slots_ = {MakeBuffer(1)};
  size_t result_floats_ = kFloats;
  absl::Status alone_fails_, together_fails_;
  int alone_ = 0, together_ = 0;
  std::vector<float> given_;  // in trials
  AloneTrial trial_;
  std::vector<NodeResult> results_;
};

TEST_F(BothWaysTest, NothingOfTheTrialIsSeen) {
  EXPECT_TRUE(Run(/*off=*/100).ok());
  EXPECT_EQ(alone_, 1);
  EXPECT_EQ(together_, 2);
  EXPECT_EQ(FirstOf(*slots_[0]), 2);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(FirstOf(*results_[0].buffer), 2);
}

TEST_F(BothWaysTest, DecidesOnceAllWereEqual) {
  EXPECT_NE(Decide(), AloneTrial::Way::kBoth);
  // How soon, and how, is up to the clock.
  EXPECT_GE(alone_, AloneTrial::kFirstComparisons);
  EXPECT_LE(alone_, AloneTrial::kComparisons);
  EXPECT_EQ(together_, 2 * alone_);
  EXPECT_EQ(FirstOf(*slots_[0]), 1 + alone_);
}

TEST_F(BothWaysTest, TrialsHaveNumbersOfTheirOwn) {
  for (int i = 0; i < 3; ++i) {
    trial_.Next();
    EXPECT_TRUE(Run().ok());
  }
  // The same for both ways, others in every run, and none of the program's.
  ASSERT_EQ(given_.size(), 6u);
  for (size_t i = 0; i < given_.size(); i += 2) {
    EXPECT_EQ(given_[i], given_[i + 1]);
    EXPECT_GT(given_[i], 0);
    EXPECT_LT(given_[i], 1);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(given_[i], given_[j]);
  }
}

TEST_F(BothWaysTest, ADifferenceLeavesTheCallToAllThreads) {
  EXPECT_EQ(Decide(/*off=*/1e-6f), AloneTrial::Way::kTogether);
  EXPECT_EQ(alone_, 1);
}

TEST_F(BothWaysTest, AFailureAloneIsNobodysBusiness) {
  alone_fails_ = absl::InternalError("no");
  EXPECT_EQ(Decide(), AloneTrial::Way::kTogether);
  EXPECT_EQ(results_.size(), 1u);
  EXPECT_EQ(alone_, 1);
}

TEST_F(BothWaysTest, AFailureOfAllThreadsIsTheCalls) {
  together_fails_ = absl::InternalError("no");
  EXPECT_EQ(Run(), together_fails_);
  EXPECT_TRUE(results_.empty());
}

TEST_F(BothWaysTest, LargeOnesAreNotMadeUp) {
  slots_[0] = MakeBuffer(1, AloneTrial::kMaxOperandBytes / sizeof(float) + 1);
  EXPECT_EQ(Decide(), AloneTrial::Way::kTogether);
  EXPECT_EQ(alone_, 0);
  EXPECT_EQ(together_, 1);
}

TEST_F(BothWaysTest, LargeResultsEndTheTrial) {
  result_floats_ = AloneTrial::kMaxBytes / sizeof(float) + 1;
  EXPECT_EQ(Decide(), AloneTrial::Way::kTogether);
  EXPECT_EQ(alone_, 1);
}

}  // namespace
}  // namespace djinn::worker
