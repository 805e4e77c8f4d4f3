// Tests generators: the library draws what PyTorch's CPU draws, state by state.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "common/base/error.h"
#include "gpu_worker/device/cpu/program_tester.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Ints = std::vector<int64_t>;
using c10::IValue;

class RandomTest : public testing::Test {
 protected:
  RandomTest() { Seed(1234); }

  static void Seed(uint64_t seed) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(seed);
  }

  ProgramTester tester_;
};

TEST_F(RandomTest, SeededStateIsThatOfManualSeed) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{42}, UINT64_MAX}) {
    Seed(seed);
    const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
    const auto buffer = tester_.library()->SeedGenerator(seed);
    EXPECT_EQ((*buffer)->size_bytes(), *tester_.library()->GeneratorBytes());
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(ProgramTester::BytesOf(**buffer),
              std::string(static_cast<const char*>(state.const_data_ptr()),
                          state.nbytes()));
  }
}

TEST_F(RandomTest, ImplicitDrawsAdvanceTheState) {
  const at::Tensor x = at::ones({40, 3});
  const CallOutcome first =
      tester_.ExpectLikeEager("aten::dropout", "", {x, 0.5, true});
  const CallOutcome second =
      tester_.ExpectLikeEager("aten::dropout", "", {x, 0.5, true});
  EXPECT_FALSE(SameBits(ProgramTester::TensorOf(first.results[0]),
                        ProgramTester::TensorOf(second.results[0])));
  tester_.ExpectLikeEager("aten::native_dropout", "", {x, 0.3, true});
  // The operator draws although it drops nothing.
  tester_.ExpectLikeEager("aten::native_dropout", "", {x, 0.0, true});
  tester_.ExpectLikeEager("aten::dropout", "", {x, 0.0, true});
  tester_.ExpectLikeEager("aten::randn_like", "", {x});
  tester_.ExpectLikeEager("aten::randperm", "", {10});
  tester_.ExpectLikeEager("aten::feature_alpha_dropout", "", {x, 0.5, true});
}

TEST_F(RandomTest, AttentionDrawsForItsDropoutOnly) {
  const at::Tensor q = at::randn({2, 2, 5, 8});
  for (const double p : {0.0, 0.5}) {
    tester_.ExpectLikeEager("aten::scaled_dot_product_attention", "",
                            {q, q, q, IValue(), p});
    tester_.ExpectLikeEager("aten::_scaled_dot_product_attention_math", "",
                            {q, q, q, IValue(), p});
  }
}

TEST_F(RandomTest, TheDefaultGeneratorIsNotDisturbed) {
  EncodedCall call = tester_.Encode(
      "aten::dropout", "", {at::ones({100}), 0.5, true}, {at::ones({100})});
  Seed(7);
  const at::Tensor expected = at::randn({3});
  Seed(7);
  ASSERT_TRUE(tester_.Run(call).status.ok());
  EXPECT_TRUE(SameBits(at::randn({3}), expected));
}

TEST_F(RandomTest, ExplicitGenerators) {
  const at::Generator generator = at::detail::createCPUGenerator(99);
  // Odd counts below 16 leave a cached normal sample for the next call.
  for (const int64_t count : {1, 3, 5, 16, 17, 2}) {
    for (const c10::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor x = at::zeros({count}, at::TensorOptions().dtype(type));
      tester_.ExpectLikeEager("aten::normal_", "", {x, 1.0, 2.0, generator});
    }
  }
  const at::Tensor x = at::zeros({33});
  tester_.ExpectLikeEager("aten::bernoulli_", "float", {x, 0.25, generator});
  tester_.ExpectLikeEager("aten::bernoulli_", "Tensor",
                          {x, at::full({33}, 0.5), generator});
  tester_.ExpectLikeEager("aten::uniform_", "", {x, -1.0, 1.0, generator});
  tester_.ExpectLikeEager("aten::random_", "from", {x, 0, 10, generator});
  tester_.ExpectLikeEager("aten::exponential_", "", {x, 1.0, generator});
  tester_.ExpectLikeEager("aten::multinomial", "",
                          {at::ones({5}), 3, false, generator});
  // None at the client is its default generator.
  tester_.ExpectLikeEager("aten::normal_", "", {at::zeros({3})});
}

TEST_F(RandomTest, AFailedCallDrawsNothing) {
  const at::Generator generator = at::detail::createCPUGenerator(5);
  EXPECT_EQ(ErrorReason(tester_.ExpectFailsLikeEager(
                "aten::bernoulli_", "float", {at::zeros({4}), 1.5, generator})),
            "OPERATOR_FAILED");
  EXPECT_EQ(ErrorReason(tester_.ExpectFailsLikeEager(
                "aten::dropout", "", {at::ones({4}), 1.5, true})),
            "OPERATOR_FAILED");
  // The state stays unchanged although the operator succeeded: it did not
  // return the results that the graph names.
  EncodedCall call =
      tester_.Encode("aten::unbind", "int", {at::ones({4}), 0}, {at::ones({})});
  EXPECT_FALSE(tester_.Run(call).status.ok());
}

std::string StateAfter(int64_t draws) {
  at::Generator generator = at::detail::createCPUGenerator(7);
  // Draws doubles and floats, to leave a cached normal sample of each.
  at::zeros({draws}).normal_(0, 1, generator);
  at::zeros({draws}, at::kDouble).normal_(0, 1, generator);
  const at::Tensor state = generator.get_state();
  return std::string(static_cast<const char*>(state.const_data_ptr()),
                     state.nbytes());
}

TEST_F(RandomTest, EveryStateThatDrawsLeaveIsAccepted) {
  for (int64_t draws = 0; draws < 700; ++draws) {
    const absl::Status status =
        tester_.library()->CheckGenerator(StateAfter(draws));
    ASSERT_TRUE(status.ok()) << draws << ": " << status;
  }
}

TEST_F(RandomTest, StatesThatNoDrawsLeaveAreRefused) {
  const std::string good = StateAfter(3);
  const auto expect_refused = [&](absl::string_view what, std::string state) {
    const absl::Status status = tester_.library()->CheckGenerator(state);
    EXPECT_EQ(ErrorReason(status), "INVALID_GENERATOR") << what;
  };
  const auto changed = [&](size_t offset, auto value) {
    std::string state = good;
    std::memcpy(state.data() + offset, &value, sizeof(value));
    return state;
  };
  expect_refused("empty", "");
  expect_refused("short", good.substr(1));
  expect_refused("long", good + "x");
  expect_refused("zeros", std::string(good.size(), '\0'));
  expect_refused("not seeded", changed(12, int32_t{0}));
  expect_refused("nothing left", changed(8, int32_t{0}));
  expect_refused("left of nowhere", changed(8, int32_t{-1}));
  expect_refused("too much left", changed(8, int32_t{625}));
  // `left` = 624 is valid alone, but with this position PyTorch would read past
  // the state's 624 words.
  expect_refused("more left than words", changed(8, int32_t{624}));
  expect_refused("beyond the words", changed(16, uint64_t{625}));
  expect_refused("far beyond", changed(16, UINT64_MAX));
  expect_refused("a wide word", changed(24, uint64_t{1} << 32));
  expect_refused("a flag", changed(24 + 8 * 624 + 24, int32_t{2}));
  expect_refused("the other flag", changed(5052, uint8_t{2}));
}

TEST_F(RandomTest, BytesThatAreNoStateAreRefused) {
  for (const uint64_t size : {0, 100, 5056}) {
    EncodedCall call = tester_.Encode(
        "aten::dropout", "", {at::ones({4}), 0.5, true}, {at::ones({4})});
    const uint32_t slot = *call.node().implicit_generator_slot;
    call.slots[slot] = tester_.device()->Allocate(size).value();
    const CallOutcome outcome = tester_.Run(call);
    EXPECT_EQ(ErrorReason(outcome.status), "INVALID_GENERATOR") << size;
  }
  // The failed calls released the generator's lock.
  tester_.ExpectLikeEager("aten::dropout", "", {at::ones({4}), 0.5, true});
}

}  // namespace
}  // namespace djinn::worker
