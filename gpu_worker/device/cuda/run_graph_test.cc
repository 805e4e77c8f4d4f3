// Compares recorded runs with the same runs executed node by node, in every
// value.
#include "gpu_worker/device/cuda/run_graph.h"

#include <string>
#include <vector>

#include "gpu_worker/device/cuda/testing/run_tester.h"
#include "gpu_worker/device/torch/compiler/node_compiler.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// t = x + w; kv += t; out = t * kv: an input, a weight and a cache.
struct Step {
  AtenGraph s;
  uint32_t x = s.Bound();
  uint32_t w = s.Bound();
  uint32_t kv = s.Bound();
  uint32_t t = s.Add(x, w, 3);
  uint32_t out = (s.AddInPlace(kv, t, 3), s.Multiply(t, kv, 3));
};

// Executes the same runs on two devices, one of which records.
class RunGraphTest : public testing::Test {
 protected:
  struct Twin {
    RunTester& tester;
    std::shared_ptr<const Plan> plan;
    uint64_t w = 0;
    uint64_t kv = 0;
    std::vector<uint64_t> outs;
  };

  RunGraphTest() {
    for (Twin& twin : twins_) {
      twin.plan = twin.tester.Admit(step_.s);
      twin.w = twin.tester.Upload({10, 20, 30});
      twin.kv = twin.tester.Upload({0, 0, 0});
    }
  }

  // Runs both with a new input and compares the results.
  void Run() {
    ++runs_;
    const float f = static_cast<float>(runs_);
    for (Twin& twin : twins_) {
      // The memory of earlier inputs may be reused.
      const uint64_t x = twin.tester.Upload({f, f * f, -f});
      const auto ids =
          twin.tester.Run(*twin.plan, {x, twin.w, twin.kv}, {}, {step_.t});
      twin.outs.push_back(ids[step_.out]);
      inputs_.push_back(x);
    }
    ExpectAlike();
  }
  void RunTimes(int times) {
    for (int i = 0; i < times; ++i) Run();
  }
  // Compares the caches and the results of all runs.
  void ExpectAlike() {
    EXPECT_EQ(twins_[0].tester.Values(twins_[0].kv),
              twins_[1].tester.Values(twins_[1].kv))
        << "run " << runs_;
    for (size_t i = 0; i < twins_[0].outs.size(); ++i) {
      EXPECT_EQ(twins_[0].tester.Values(twins_[0].outs[i]),
                twins_[1].tester.Values(twins_[1].outs[i]))
          << "result of run " << i << " after run " << runs_;
    }
  }

  Step step_;
  RunTester recording_{true};
  RunTester plain_{false};
  Twin twins_[2] = {{recording_, nullptr}, {plain_, nullptr}};
  int runs_ = 0;
  std::vector<uint64_t> inputs_;
};

TEST_F(RunGraphTest, AFewPlainRunsAndThenTheGraph) {
  RunTimes(3);
  EXPECT_EQ(recording_.recorder().recorded(), 0u);
  Run();
  EXPECT_EQ(recording_.recorder().recorded(), 1u);
  EXPECT_EQ(recording_.recorder().replayed(), 1u);
  RunTimes(4);
  EXPECT_EQ(recording_.recorder().recorded(), 1u);
  EXPECT_EQ(recording_.recorder().replayed(), 5u);
  EXPECT_EQ(recording_.Count("graphs_replayed"), 5u);
  EXPECT_EQ(recording_.counters().nodes, plain_.counters().nodes);
}

TEST_F(RunGraphTest, OperandsAreNotHeldByTheGraph) {
  RunTimes(6);
  // A copy before a write would show that the graph holds the cache.
  EXPECT_EQ(recording_.counters().write_copies, 0u);
}

TEST_F(RunGraphTest, ReplaySeesValuesWrittenInPlace) {
  RunTimes(5);
  for (Twin& twin : twins_) twin.tester.WriteInPlace(twin.w, {1, 2, 3});
  for (Twin& twin : twins_) twin.tester.WriteInPlace(twin.kv, {7, 8, 9});
  RunTimes(2);
  EXPECT_EQ(recording_.recorder().replayed(), 4u);
}

TEST_F(RunGraphTest, AWeightThatLiesElsewhereIsNotMissed) {
  RunTimes(5);
  const uint64_t replayed = recording_.recorder().replayed();
  for (Twin& twin : twins_) {
    // The old memory stays in use, so the new weight lies elsewhere.
    twin.w = twin.tester.Upload({-1, -2, -3});
  }
  RunTimes(2);
  EXPECT_EQ(recording_.recorder().replayed(), replayed);
  EXPECT_EQ(recording_.Count("graphs_missed"), 2u);
}

TEST_F(RunGraphTest, GraphThatNoLongerFitsIsRecordedAgain) {
  RunTimes(5);
  for (Twin& twin : twins_) twin.w = twin.tester.Upload({-1, -2, -3});
  RunTimes(8);
  EXPECT_EQ(recording_.recorder().recorded(), 2u);
  EXPECT_EQ(recording_.recorder().alive(), 1u);
  // The second graph copies the weight from wherever it lies.
  const uint64_t replayed = recording_.recorder().replayed();
  for (Twin& twin : twins_) twin.w = twin.tester.Upload({5, 6, 7});
  RunTimes(2);
  EXPECT_EQ(recording_.recorder().replayed(), replayed + 2);
}

TEST_F(RunGraphTest, FreedMemoryThatIsUsedAgainIsReadAsItIsNow) {
  recording_.accelerator().ReuseMemory();
  RunTimes(5);
  const void* const before = recording_.Address(twins_[0].w);
  for (Twin& twin : twins_) {
    twin.tester.Free(twin.w);
    twin.w = twin.tester.Upload({4, 5, 6});
  }
  // The graph reads the bytes of another storage at the same address.
  ASSERT_EQ(recording_.Address(twins_[0].w), before);
  RunTimes(2);
  EXPECT_EQ(recording_.recorder().replayed(), 4u);
}

TEST_F(RunGraphTest, FreedMemoryThatAnotherUsesIsNotWritten) {
  recording_.accelerator().ReuseMemory();
  RunTimes(5);
  uint64_t others[2];
  for (int i = 0; i < 2; ++i) {
    Twin& twin = twins_[i];
    twin.tester.Free(twin.kv);
    others[i] = twin.tester.Upload({100, 200, 300});
    twin.kv = twin.tester.Upload({1, 1, 1});
  }
  RunTimes(6);
  EXPECT_EQ(recording_.Values(others[0]), (Floats{100, 200, 300}));
}

TEST_F(RunGraphTest, ACacheThatMovesEveryTimeIsCopiedInAndOut) {
  for (int i = 0; i < 8; ++i) {
    for (Twin& twin : twins_) {
      twin.kv = twin.tester.Upload({float(i), 2, 3});
    }
    Run();
  }
  EXPECT_EQ(recording_.recorder().recorded(), 1u);
  EXPECT_EQ(recording_.recorder().replayed(), 5u);
}

TEST_F(RunGraphTest, ResultsOfEarlierRunsStay) {
  // ExpectAlike() compares the results of all runs after every run.
  RunTimes(12);
  EXPECT_EQ(recording_.recorder().replayed(), 9u);
}

TEST_F(RunGraphTest, MemoryIsGivenBack) {
  RunTimes(5);
  EXPECT_GT(recording_.device().ReleaseSpareMemory(1), 0u);
  EXPECT_EQ(recording_.recorder().alive(), 0u);
  RunTimes(5);
  EXPECT_EQ(recording_.recorder().recorded(), 2u);
}

TEST_F(RunGraphTest, FailedRecordingIsNotRetried) {
  recording_.recorder().Refuse(absl::InternalError("no graphs today"));
  RunTimes(8);
  recording_.recorder().Refuse(absl::OkStatus());
  RunTimes(8);
  EXPECT_EQ(recording_.recorder().recorded(), 0u);
  EXPECT_EQ(recording_.Count("graphs_refused_failed"), 1u);
}

TEST_F(RunGraphTest, ARecordingThatFailsAtItsEndLeavesNothing) {
  recording_.recorder().FailAtTheEnd(absl::InternalError("half a graph"));
  // Run() checks that results and written caches equal those of plain runs.
  RunTimes(8);
  EXPECT_EQ(recording_.recorder().alive(), 0u);
  EXPECT_EQ(recording_.Count("graphs_refused_failed"), 1u);
  EXPECT_TRUE(recording_.device().Health().ok());
}

TEST_F(RunGraphTest, ARecordingThatCannotBeEndedBreaksTheDevice) {
  RunTimes(3);
  recording_.recorder().FailAtTheEnd(absl::InternalError("half a graph"));
  recording_.accelerator().Break(absl::UnavailableError("still recording"));
  const Twin& twin = twins_[0];
  recording_.Run(*twin.plan, {inputs_.back(), twin.w, twin.kv}, {}, {step_.t});
  EXPECT_EQ(recording_.device().Health().message(), "still recording");
}

TEST_F(RunGraphTest, APlanThatGoesTakesItsGraphAlong) {
  RunTimes(5);
  EXPECT_EQ(recording_.recorder().alive(), 1u);
  AtenGraph other;
  const uint32_t x = other.Bound();
  other.Add(x, x, 3);
  {
    RunTester tester;
    const auto plan = tester.Admit(other);
    for (int i = 0; i < 5; ++i) tester.Run(*plan, {tester.Upload({1, 2, 3})});
    EXPECT_EQ(tester.recorder().alive(), 1u);
  }
}

TEST(RunGraphsTest, NumbersThatVaryAreNotRecorded) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Result();
  s.Call("add", "Scalar", {AtenGraph::View(x, {2}), s.Hole(), int64_t{1}},
         {AtenGraph::View(y, {2})});
  RunTester tester;
  const auto plan = tester.Admit(s);
  const uint64_t id = tester.Upload({1, 2});
  for (int i = 0; i < 8; ++i) {
    const float f = static_cast<float>(i);
    EXPECT_EQ(tester.Values(tester.Run(*plan, {id}, {f})[y]),
              (Floats{1 + f, 2 + f}));
  }
  EXPECT_EQ(tester.recorder().recorded(), 0u);
  // Runs with equal numbers are recorded. A run with another number does not
  // replay the graph.
  for (int i = 0; i < 5; ++i) tester.Run(*plan, {id}, {0.5});
  EXPECT_EQ(tester.recorder().recorded(), 1u);
  EXPECT_EQ(tester.Values(tester.Run(*plan, {id}, {2})[y]), (Floats{3, 4}));
}

TEST(RunGraphsTest, IndicesAreLookedAtInEveryReplay) {
  AtenGraph s;
  const uint32_t table = s.Bound(), indices = s.Bound();
  const uint32_t rows = s.Embedding(table, indices, 3, 2, 2);
  RunTester tester;
  const auto plan = tester.Admit(s);
  const uint64_t table_id = tester.Upload({0, 1, 2, 3, 4, 5});
  const auto run = [&](std::vector<int64_t> values) {
    return tester.Run(*plan, {table_id, tester.UploadIndices(values)})[rows];
  };
  for (int i = 0; i < 5; ++i) run({1, 0});
  EXPECT_EQ(tester.recorder().replayed(), 2u);
  EXPECT_EQ(tester.Values(run({2, 1})), (Floats{4, 5, 2, 3}));
  const uint64_t bad = run({2, 3});
  ASSERT_NE(tester.Poison(bad), nullptr);
  EXPECT_EQ(tester.Poison(bad)->operator_name(), "aten::embedding");
  EXPECT_EQ(tester.Values(run({0, 2})), (Floats{0, 1, 4, 5}));
  EXPECT_EQ(tester.recorder().replayed(), 5u);
}

TEST(RunGraphsTest, ResultsAreLaidOutInEveryReplay) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  srg::TensorView columns = AtenGraph::View(s.Result(), {2, 2});
  columns.strides = {1, 2};
  s.Call("neg", "", {AtenGraph::View(x, {2, 2})}, {columns});
  RunTester tester;
  const auto plan = tester.Admit(s);
  for (int i = 0; i < 7; ++i) {
    const float f = static_cast<float>(i);
    const auto ids = tester.Run(*plan, {tester.Upload({1, 2, 3, f})});
    EXPECT_EQ(tester.Values(ids[columns.slot]), (Floats{-1, -3, -2, -f})) << i;
  }
  EXPECT_EQ(tester.recorder().replayed(), 4u);
}

TEST(RunGraphsTest, CreatedStoragesAreZeroInEveryReplay) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t made = s.Created(12);
  s.AddInPlace(made, x, 3);
  s.AddInPlace(made, x, 3);
  RunTester tester;
  const auto plan = tester.Admit(s);
  for (int i = 0; i < 7; ++i) {
    const auto ids = tester.Run(*plan, {tester.Upload({1, 2, float(i)})});
    EXPECT_EQ(tester.Values(ids[made]), (Floats{2, 4, 2 * float(i)})) << i;
  }
  EXPECT_EQ(tester.recorder().replayed(), 4u);
}

TEST(RunGraphsTest, RunsThatDrawOrWaitAreNotRecorded) {
  AtenGraph waits;
  const uint32_t x = waits.Bound();
  const uint32_t places = waits.Result();
  waits.Call("nonzero", "", {AtenGraph::View(x, {3})},
             {srg::UnknownResult{places}});
  RunTester tester;
  const auto plan = tester.Admit(waits);
  const uint64_t id = tester.Upload({1, 0, 2});
  for (int i = 0; i < 6; ++i) tester.Run(*plan, {id});
  EXPECT_EQ(tester.Count("graphs_refused_waits"), 1u);

  AtenGraph draws;
  const uint32_t generator = draws.Generator();
  const srg::Argument none = std::monostate();
  draws.Call("rand", "generator",
             {std::vector<int64_t>{4}, srg::GeneratorSlot{generator}, none,
              none, srg::WorkerDevice{}, none},
             {AtenGraph::View(draws.Result(), {4})});
  const auto random = tester.Admit(draws);
  const uint64_t state = tester.SeededGenerator(1);
  for (int i = 0; i < 6; ++i) tester.Run(*random, {state});
  EXPECT_EQ(tester.Count("graphs_refused_random"), 1u);
  EXPECT_EQ(tester.recorder().recorded(), 0u);
}

TEST(RunGraphsTest, NumbersOfTheHostThatMayBeCopiedAreNotRecorded) {
  // `add` takes the number by value, `copy_` copies it to the device.
  for (const bool copies : {false, true}) {
    AtenGraph s;
    const uint32_t x = s.Bound();
    srg::ScalarTensor number;
    number.data_type = srg::DataType::kFloat32;
    number.hole = s.NumberOfTheHost();
    if (copies) {
      s.Call("copy_", "", {AtenGraph::View(x, {2}), number, false}).writes = {
          x};
    } else {
      s.Call("add_", "Tensor", {AtenGraph::View(x, {2}), number, int64_t{1}})
          .writes = {x};
    }
    const std::vector<TorchCall> calls =
        CompileNodes(s.get(), {}, c10::Device(c10::kCPU)).value();
    EXPECT_EQ(WhyNeverRecorded(s.get(), calls), copies ? "host" : "");
  }
}

TEST(RunGraphsTest, AttentionWithoutDropoutIsRecorded) {
  AtenGraph s;
  const uint32_t q = s.Bound(), k = s.Bound(), v = s.Bound();
  const uint32_t generator = s.Generator();
  const uint32_t out = s.Result();
  const srg::Argument none = std::monostate();
  s.Call("scaled_dot_product_attention", "",
         {AtenGraph::View(q, {1, 1, 1, 2}), AtenGraph::View(k, {1, 1, 2, 2}),
          AtenGraph::View(v, {1, 1, 2, 2}), none, s.Hole(), false, none, false},
         {AtenGraph::View(out, {1, 1, 1, 2})})
      .implicit_generator_slot = generator;
  RunTester tester, plain(false);
  const auto plan = tester.Admit(s), plain_plan = plain.Admit(s);
  const auto run = [&](RunTester& t, const Plan& p, float f, double dropout) {
    const uint64_t state = t.SeededGenerator(1);
    return t.Run(p,
                 {t.Upload({f, 1}), t.Upload({1, 2, 3, 4}),
                  t.Upload({5, 6, 7, f}), state},
                 {dropout})[out];
  };
  for (int i = 0; i < 6; ++i) {
    const float f = static_cast<float>(i);
    EXPECT_EQ(tester.Values(run(tester, *plan, f, 0)),
              plain.Values(run(plain, *plain_plan, f, 0)));
  }
  EXPECT_EQ(tester.recorder().recorded(), 1u);
  EXPECT_EQ(tester.recorder().replayed(), 3u);
  // A run with dropout draws random numbers and is not replayed.
  EXPECT_EQ(tester.Values(run(tester, *plan, 1, 0.5)),
            plain.Values(run(plain, *plain_plan, 1, 0.5)));
  EXPECT_EQ(tester.recorder().replayed(), 3u);
  run(tester, *plan, 1, 0);
  EXPECT_EQ(tester.recorder().replayed(), 4u);
}

TEST(RunGraphsTest, EachSetOfLargeOperandsHasAGraphOfItsOwn) {
  Step step;
  // The limit lets a replay copy the input and nothing else.
  RunTester tester(true, {.max_copied_bytes = 12});
  RunTester plain(false);
  const auto plan = tester.Admit(step.s), plain_plan = plain.Admit(step.s);
  // Storages of two tenants' copies of one model.
  uint64_t w[2], kv[2], plain_w[2], plain_kv[2];
  for (int i = 0; i < 2; ++i) {
    const float f = static_cast<float>(10 * i);
    w[i] = tester.Upload({f, 2, 3});
    kv[i] = tester.Upload({0, f, 0});
    plain_w[i] = plain.Upload({f, 2, 3});
    plain_kv[i] = plain.Upload({0, f, 0});
  }
  for (int i = 0; i < 12; ++i) {
    const float f = static_cast<float>(i);
    const int who = i % 2;
    const auto ids =
        tester.Run(*plan, {tester.Upload({f, f, 1}), w[who], kv[who]});
    const auto expected = plain.Run(
        *plain_plan, {plain.Upload({f, f, 1}), plain_w[who], plain_kv[who]});
    EXPECT_EQ(tester.Values(ids[step.out]), plain.Values(expected[step.out]));
    EXPECT_EQ(tester.Values(kv[who]), plain.Values(plain_kv[who]));
  }
  EXPECT_EQ(tester.recorder().recorded(), 2u);
  EXPECT_EQ(tester.recorder().alive(), 2u);
  EXPECT_EQ(tester.recorder().replayed(), 6u);
  EXPECT_EQ(tester.Count("graphs_missed"), 0u);
}

TEST(RunGraphsTest, LargeOperandsThatMoveEveryTimeAreNotCopied) {
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t sum = s.Add(x, x, 2);
  RunTester tester(true, {.max_copied_bytes = 7});
  const auto plan = tester.Admit(s);
  for (int i = 0; i < 20; ++i) {
    const float f = static_cast<float>(i);
    EXPECT_EQ(tester.Values(tester.Run(*plan, {tester.Upload({f, 1})})[sum]),
              (Floats{2 * f, 2}));
  }
  EXPECT_EQ(tester.recorder().recorded(), 0u);
  // Operands that stay at one address are used in place.
  const uint64_t id = tester.Upload({1, 2});
  for (int i = 0; i < 5; ++i) tester.Run(*plan, {id});
  EXPECT_EQ(tester.recorder().recorded(), 1u);
}

TEST(RunGraphsTest, WhereMemoryLacksItIsTriedAgainLater) {
  class Spare final : public SpareMemory {
   public:
    std::shared_ptr<void> Reserve(const std::string&, uint64_t) override {
      ++asked;
      return lacks ? nullptr : std::make_shared<int>();
    }
    bool lacks = true;
    int asked = 0;
  };
  Spare spare;
  AtenGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, 2);
  RunTester tester;
  const auto plan = tester.Admit(s);
  tester.device().SetSpareMemory(&spare);
  const uint64_t id = tester.Upload({3, 5});
  for (int i = 0; i < 8; ++i) tester.Run(*plan, {id});
  EXPECT_EQ(tester.Count("graphs_refused_memory"), 1u);
  spare.lacks = false;
  for (int i = 0; i < 8; ++i) tester.Run(*plan, {id});
  EXPECT_EQ(spare.asked, 2);
  EXPECT_GT(tester.Count("graphs_replayed"), 0u);
  tester.device().SetSpareMemory(nullptr);
}

TEST(RunGraphsTest, NothingIsRecordedWhereNoneAreAllowed) {
  RunTester tester(true, {.max_graphs = 0});
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t sum = s.Add(x, x, 2);
  const auto plan = tester.Admit(s);
  const uint64_t id = tester.Upload({3, 5});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(tester.Values(tester.Run(*plan, {id})[sum]), (Floats{6, 10}));
  }
  EXPECT_EQ(tester.recorder().recorded(), 0u);
  EXPECT_EQ(tester.Count("graphs_recorded"), 0u);
}

TEST(RunGraphsTest, NoMoreGraphsThanAllowed) {
  RunTester tester(true, {.max_graphs = 1});
  AtenGraph one, other;
  const uint32_t x = one.Bound(), y = other.Bound();
  const uint32_t sum = one.Add(x, x, 2);
  const uint32_t product = other.Multiply(y, y, 2);
  const auto add = tester.Admit(one), multiply = tester.Admit(other);
  const uint64_t id = tester.Upload({3, 5});
  for (int i = 0; i < 5; ++i) tester.Run(*add, {id});
  EXPECT_EQ(tester.recorder().alive(), 1u);
  for (int i = 0; i < 5; ++i) tester.Run(*multiply, {id});
  EXPECT_EQ(tester.recorder().alive(), 1u);
  EXPECT_EQ(tester.Count("graphs_dropped"), 1u);
  EXPECT_EQ(tester.Values(tester.Run(*add, {id})[sum]), (Floats{6, 10}));
  EXPECT_EQ(tester.Values(tester.Run(*multiply, {id})[product]),
            (Floats{9, 25}));
}

TEST(RunGraphsTest, NoMoreBytesThanAllowed) {
  RunTester tester(true, {.max_bytes = 7});
  AtenGraph s;
  const uint32_t x = s.Bound();
  const uint32_t sum = s.Add(x, x, 2);
  const auto plan = tester.Admit(s);
  const uint64_t id = tester.Upload({3, 5});
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(tester.Values(tester.Run(*plan, {id})[sum]), (Floats{6, 10}));
  }
  EXPECT_EQ(tester.recorder().alive(), 0u);
  EXPECT_EQ(tester.Count("graphs_refused_memory"), 1u);
}

}  // namespace
}  // namespace djinn::worker
