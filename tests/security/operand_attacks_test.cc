// Tests attacks through operands that PyTorch's kernels trust, between two
// tenants of a worker with `isolation.mode: process`. Each must end in an error
// or in the end of the attacker's own executor, and show nothing of the
// victim's.
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/eventually.h"
#include "tests/security/raw_attack.h"
#include "tests/security/walls.h"

namespace djinn {
namespace {

using Ints = std::vector<int64_t>;
using torch::jit::Stack;

constexpr int64_t kFar = int64_t{1} << 30;

class OperandAttacksTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    walls_ = new Walls("{mode: process, executors: 4, node_limit: 10s}", 1,
                       kAttackers);
    victim_ = new RawClient(*walls_, "victim");
    tester_ = new worker::ProgramTester(
        {.memory_bytes = uint64_t{1} << 26, .threads = 1});
  }
  static void TearDownTestSuite() {
    delete tester_;
    delete victim_;
    delete walls_;
  }

  // Leaves canaries in live and in freed memory of the victim.
  void SetUp() override {
    for (int i = 0; i < 3; ++i) {
      victim_->Send(Install(++last_id_, 0, Canaries()));
    }
    victim_->Send(Free({last_id_ - 1, last_id_ - 2}));
    victim_->Send(Install(++last_id_, 0, Canaries()));
    canary_ = last_id_;
  }
  // The victim and the worker never notice an attack.
  void TearDown() override {
    EXPECT_TRUE(victim_->Works());
    EXPECT_EQ(ReadBytes(victim_, canary_, 1, Canaries().size()), Canaries());
    EXPECT_FALSE(victim_->control().ended());
    EXPECT_TRUE(walls_->worker().Running());
    for (const absl::string_view line : absl::StrSplit(walls_->log(), '\n')) {
      EXPECT_TRUE(!absl::StrContains(line, "executor ended") ||
                  absl::StartsWith(FieldOf(line, "tenant"), "attacker"))
          << line;
    }
  }

  // Makes the call many times, because what it reads differs, until it ends the
  // executor. Another tenant attacks each time, because one whose executor has
  // ended waits for the next.
  std::optional<std::string> Attack(const std::string& name,
                                    const std::string& overload,
                                    Stack operands) {
    const RawCall call =
        EncodeCall(tester_, name, overload, std::move(operands));
    RawClient client(*walls_,
                     absl::StrCat("attacker", attacks_++ % kAttackers));
    std::optional<std::string> outcome = Play(call, &client, &last_id_);
    for (int i = 1; i < kRuns && outcome.has_value(); ++i) {
      outcome = Play(call, &client, &last_id_);
    }
    // Its lease ends with its executor, by a typed reason.
    if (!outcome.has_value()) {
      EXPECT_THAT(client.session().WaitLeaseEnd(),
                  testing::AnyOf("EXECUTOR_LOST_IN_TURN", "EXECUTOR_LOST",
                                 "NODE_LIMIT"));
    }
    return outcome;
  }

  static constexpr int kRuns = 8;
  static constexpr int kAttackers = 2;
  static inline Walls* walls_ = nullptr;
  static inline RawClient* victim_ = nullptr;
  static inline worker::ProgramTester* tester_ = nullptr;
  static inline uint64_t last_id_ = 1'000'000;
  static inline int attacks_ = 0;
  uint64_t canary_ = 0;
};

struct OperandAttack {
  const char* name;
  const char* op;
  const char* overload;
  std::function<Stack()> operands;
  // Whether the call succeeds, with nothing of others in its results. Empty: it
  // may, because it stays within the memory of the attacker's process.
  std::optional<bool> succeeds = false;
};

class OneOperandAttackTest : public OperandAttacksTest,
                             public testing::WithParamInterface<OperandAttack> {
};

TEST_P(OneOperandAttackTest, HurtsOnlyTheAttacker) {
  const OperandAttack& attack = GetParam();
  const auto outcome = Attack(attack.op, attack.overload, attack.operands());
  if (!attack.succeeds.has_value()) return;
  EXPECT_EQ(outcome == "done", *attack.succeeds) << outcome.value_or("ended");
}

at::Tensor Complex(const Ints& sizes) {
  return at::ones(sizes, at::kComplexFloat);
}
// The operands of a batch norm's backward over one row of 3,000 columns. The
// gradient of the weights is grad * (input - mean) / deviation: the bytes of
// the mean as they are, and of what lies behind it.
Stack BatchNormBackward(c10::IValue save_mean) {
  const at::Tensor column = at::ones({3000});
  c10::List<bool> all;
  for (int i = 0; i < 3; ++i) all.push_back(true);
  return {int64_t{0},
          at::zeros({1, 3000}),
          at::full({1, 3000}, -1.0),
          column,
          column,
          column,
          std::move(save_mean),
          at::ones({3000}),
          true,
          1e-5,
          all,
          at::zeros({0}, at::kByte)};
}
// Labels of an alignment of which most rows are never written.
Stack Alignment() {
  return {at::randn({60, 2, 5}).log_softmax(2),
          at::ones({2, 3}, at::kLong),
          Ints{1, 1},
          Ints{1, 1},
          int64_t{0},
          false};
}

INSTANTIATE_TEST_SUITE_P(
    All, OneOperandAttackTest,
    testing::Values(
        OperandAttack{"BatchNormBackwardOfAShortMean",
                      "aten::_batch_norm_impl_index_backward", "",
                      [] { return BatchNormBackward(at::ones({16})); },
                      std::nullopt},
        OperandAttack{"BatchNormBackwardOfNoMean",
                      "aten::_batch_norm_impl_index_backward", "",
                      [] { return BatchNormBackward({}); }},
        OperandAttack{"NativeBatchNormBackwardOfAShortMean",
                      "aten::native_batch_norm_backward", "",
                      [] {
                        Stack all = BatchNormBackward(at::ones({16}));
                        // grad, input, weight and so on, without the first
                        // and the last operand.
                        std::swap(all[1], all[2]);
                        return Stack(all.begin() + 1, all.end() - 1);
                      },
                      std::nullopt},
        OperandAttack{"FftOfRealsAlongAFarDimension", "aten::_fft_r2c", "",
                      [] {
                        return Stack{at::ones({4, 4}), Ints{kFar}, int64_t{0},
                                     true};
                      }},
        OperandAttack{"FftOfComplexAlongAFarDimension", "aten::_fft_c2c", "",
                      [] {
                        return Stack{Complex({4, 4}), Ints{kFar}, int64_t{0},
                                     true};
                      }},
        OperandAttack{"FftToRealsAlongAFarDimension", "aten::_fft_c2r", "",
                      [] {
                        return Stack{Complex({4, 4}), Ints{kFar}, int64_t{0},
                                     int64_t{4}};
                      }},
        OperandAttack{"FftIntoAnOperandAlongAFarDimension", "aten::_fft_c2c",
                      "out",
                      [] {
                        return Stack{Complex({4, 4}), Ints{-kFar}, int64_t{0},
                                     true, Complex({4, 4})};
                      }},
        OperandAttack{"FftOfRealsIntoAnOperandAlongAFarDimension",
                      "aten::_fft_r2c", "out",
                      [] {
                        return Stack{at::ones({4, 4}), Ints{kFar}, int64_t{0},
                                     true, Complex({4, 3})};
                      }},
        OperandAttack{"FftToRealsIntoAnOperandAlongAFarDimension",
                      "aten::_fft_c2r", "out",
                      [] {
                        return Stack{Complex({4, 4}), Ints{-kFar}, int64_t{0},
                                     int64_t{4}, at::ones({4, 4})};
                      }},
        OperandAttack{
            "FakeQuantizeOfTooFewScales",
            "aten::fake_quantize_per_channel_affine_cachemask", "",
            [] {
              return Stack{
                  at::ones({2, 3000}), at::ones({2}), at::zeros({2}, at::kInt),
                  int64_t{1},          int64_t{0},    int64_t{255}};
            }},
        OperandAttack{"LearnableFakeQuantizeOfTooFewScales",
                      "aten::_fake_quantize_learnable_per_channel_affine", "",
                      [] {
                        return Stack{at::ones({2, 3000}),
                                     at::ones({2}),
                                     at::zeros({2}),
                                     int64_t{1},
                                     int64_t{0},
                                     int64_t{255},
                                     1.0};
                      }},
        OperandAttack{"ObserverOfTooFewExtremes",
                      "aten::fused_moving_avg_obs_fake_quant", "",
                      [] {
                        return Stack{at::ones({3000, 2}),
                                     at::ones({1}, at::kLong),
                                     at::ones({1}, at::kLong),
                                     at::zeros({1}),
                                     at::ones({1}),
                                     at::ones({1}),
                                     at::zeros({1}, at::kInt),
                                     0.01,
                                     int64_t{0},
                                     int64_t{255},
                                     int64_t{0},
                                     true,
                                     false};
                      }},
        // No guard looks at what follows on a CPU: only the wall is there.
        OperandAttack{
            "CountsOfFarIndices", "aten::embedding_dense_backward", "",
            [] {
              return Stack{at::ones({4, 2}), at::full({4}, kFar, at::kLong),
                           int64_t{5}, int64_t{-1}, true};
            },
            std::nullopt},
        OperandAttack{"GradientOfABagThatIsNotThere",
                      "aten::_embedding_bag_dense_backward", "",
                      [] {
                        return Stack{at::ones({1, 16}),
                                     at::arange(8, at::kLong),
                                     at::full({8}, 40, at::kLong),
                                     at::ones({1}, at::kLong),
                                     at::zeros({1}, at::kLong),
                                     int64_t{8},
                                     false,
                                     int64_t{0},
                                     c10::IValue(),
                                     int64_t{-1}};
                      },
                      std::nullopt},
        OperandAttack{"AlignmentThatLeavesRowsUnwritten", "aten::_ctc_loss", "",
                      Alignment, true},
        OperandAttack{
            "UnwrittenOperandOfStrides", "aten::empty_strided", "out",
            [] { return Stack{Ints{7500}, Ints{1}, at::zeros({7500})}; }, true},
        OperandAttack{
            "UnwrittenOperandOfAPermutation", "aten::empty_permuted", "out",
            [] {
              return Stack{Ints{75, 100}, Ints{1, 0}, at::zeros({75, 100})};
            },
            true},
        OperandAttack{"UnwrittenResult", "aten::empty", "memory_format",
                      [] { return Stack{Ints{7500}}; }, true},
        OperandAttack{"NormOfOneNumberRepeated", "aten::linalg_vector_norm", "",
                      [] {
                        return Stack{at::ones({1}).expand({int64_t{1} << 33}),
                                     2.5};
                      }}),
    [](const testing::TestParamInfo<OperandAttack>& info) {
      return std::string(info.param.name);
    });

// Shows that the attack above works where there is no wall: it finds what the
// other tenant left in the process that both share.
TEST(SharedProcessTest, BatchNormBackwardOfAShortMeanShowsMemoryOfOthers) {
  const Walls walls("{mode: shared}");
  RawClient victim(walls, "victim");
  RawClient attacker(walls, "attacker");
  worker::ProgramTester tester(
      {.memory_bytes = uint64_t{1} << 26, .threads = 1});
  const RawCall call =
      EncodeCall(&tester, "aten::_batch_norm_impl_index_backward", "",
                 BatchNormBackward(at::ones({16})));
  // Values of the size of the mean, with room for it between them.
  std::string canaries;
  while (canaries.size() + Canary().size() <= 64) canaries += Canary();
  uint64_t last_id = 1'000'000;
  std::vector<uint64_t> freed;
  for (int i = 0; i < 200; ++i) {
    victim.Send(Install(++last_id, 0, canaries));
    if (i % 2 == 1) freed.push_back(last_id);
  }
  victim.Send(Free(freed));
  EXPECT_TRUE(victim.Works());
  bool found = false;
  for (int i = 0; i < 8 && !found; ++i) {
    ASSERT_TRUE(Play(call, &attacker, &last_id, &found).has_value());
  }
  EXPECT_TRUE(found);
}

// The text of an error must not tell what others use.
TEST_F(OperandAttacksTest, TextOfAFullMemoryDependsOnNobodyElse) {
  RawClient client(*walls_, "attacker0");
  const auto text = [&] {
    const uint64_t id = ++last_id_;
    client.Send(Create(id, 0, uint64_t{1} << 33));
    const std::string error = client.ValueOf(id, 1);
    const std::string key = "message: \"";
    const size_t at = error.find(key);
    EXPECT_NE(at, std::string::npos) << error;
    if (at == std::string::npos) return error;
    const size_t begin = at + key.size();
    return error.substr(begin, error.find('"', begin) - begin);
  };
  const std::string before = text();
  EXPECT_THAT(before, testing::HasSubstr("memory"));
  const uint64_t large = ++last_id_;
  victim_->Send(Create(large, 0, 50 << 20));
  EXPECT_TRUE(victim_->Works());
  EXPECT_EQ(text(), before);
  victim_->Send(Free({large}));
}

// Returns the count once it has stayed the same for many heartbeats, by which
// the counts of executors arrive late.
template <typename Count>
uint64_t Settled(Count count) {
  uint64_t last = count();
  absl::Time since = absl::Now();
  EXPECT_TRUE(Eventually([&] {
    if (const uint64_t now = count(); now != last) {
      last = now;
      since = absl::Now();
    }
    return absl::Now() - since > absl::Seconds(2);
  })) << "the count goes on changing";
  return last;
}

// Whether another tenant has a graph shows in no time, because each tenant's
// executor makes a plan of its own.
TEST_F(OperandAttacksTest, GraphOfAnotherTenantSavesNoPlan) {
  v1::Graph graph = Add();
  // A graph that no other test defines.
  graph.mutable_nodes(0)->mutable_arguments(2)->set_integer(977);
  const auto misses = [] { return walls_->Info().plan_cache().misses(); };
  const uint64_t first = Settled(misses);
  victim_->Send(Define(++last_id_, graph));
  EXPECT_TRUE(victim_->Works());
  EXPECT_TRUE(Eventually([&] { return misses() > first; }));
  const uint64_t before = Settled(misses);
  // No other test attacks as this tenant, so that its executor is new.
  RawClient attacker(*walls_, "attacker");
  attacker.Send(Define(++last_id_, graph));
  EXPECT_TRUE(attacker.Works());
  // One for the graph of every RawClient, which the victim has, too.
  EXPECT_TRUE(Eventually([&] { return misses() >= before + 2; }))
      << "no plan was made";
}

}  // namespace
}  // namespace djinn
