// Tests runs of one graph at several sizes.
#include <memory>
#include <string>
#include <vector>

#include "common/srg/canonical.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

// x[:2 + n] += y[:2 + n]
srg::Graph GrowingAddTo() {
  srg::Graph graph = AddTo();
  // The sizes of the two operands.
  graph.size_hole = {{1, 4}, {1, 1}};
  return graph;
}

// Returns x + x, a temporary, and that + x, of 1 + n elements.
srg::Graph GrowingSums() {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Add(s.Add(x, x, 1), x, 1);
  srg::Graph graph = s.get();
  graph.size_hole = {{1, 4, 7, 10, 13, 16}, {1, 1, 1, 1, 1, 1}};
  return graph;
}
constexpr uint32_t kTemporary = 1;  // its slot

class SizeHoleTest : public WorkerCoreTest {
 protected:
  void Begin(size_t max_plans) {
    WorkerCoreOptions options;
    options.graph_cache.max_plans = max_plans;
    Start(options);
    client_ = Open();
    client_->InstallInline(1, FloatBytes({1, 2, 3, 4}));
    client_->InstallInline(2, FloatBytes({10, 20, 30, 40}));
  }
  void RunAt(int64_t size, uint64_t id = 1) {
    client_->set_run_size(size);
    client_->Run(id, {1, 2});
    client_->set_run_size(0);
  }

  std::unique_ptr<TestClient> client_;
};

TEST_F(SizeHoleTest, EachRunHasItsOwn) {
  Begin(100);
  client_->Define(1, GrowingAddTo());
  RunAt(0);
  EXPECT_EQ(client_->Read(1, 4), (Floats{11, 22, 3, 4}));
  RunAt(2);
  EXPECT_EQ(client_->Read(1, 4), (Floats{21, 42, 33, 44}));
  RunAt(-1);
  EXPECT_EQ(client_->Read(1, 4), (Floats{31, 42, 33, 44}));
  RunAt(2);
  EXPECT_EQ(client_->Read(1, 4), (Floats{41, 62, 63, 84}));
  // The four runs are of one graph.
  const v1::WorkerState state = core_->Snapshot();
  ASSERT_EQ(state.graphs_size(), 1);
  EXPECT_EQ(state.graphs(0).fingerprint(), srg::Fingerprint(GrowingAddTo()));
  EXPECT_EQ(state.graphs(0).run_count(), 4u);
  EXPECT_EQ(state.plan_cache().entries(), 3u);
}

TEST_F(SizeHoleTest, ResultsGrowToo) {
  Begin(100);
  client_->Define(1, GrowingSums());
  const auto run = [&](int64_t size, std::vector<uint64_t> storages) {
    client_->set_run_size(size);
    client_->Run(1, storages);
    client_->set_run_size(0);
  };
  run(3, {1, 5, 6});
  EXPECT_EQ(client_->Read(6, 4), (Floats{3, 6, 9, 12}));
  run(0, {1, 7, 8});
  EXPECT_EQ(client_->Read(8, 1), (Floats{3}));
  client_->Free({1, 2, 5, 6, 7, 8});
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(SizeHoleTest, ARepeatMayHaveAnother) {
  Begin(100);
  client_->Define(1, GrowingSums());
  client_->WaitFor(
      [](const v1::ControlResponse& r) { return r.has_admitted(); });
  client_->set_remember(true);
  // The run's results are charged at once.
  client_->Run(1, {1, 10, 11}, {}, {kTemporary});
  client_->set_remember(false);
  for (const int64_t size : {1, 3, 2}) {
    v1::Ordered message;
    v1::Run* const run = message.mutable_run();
    run->set_graph_id(1);
    run->set_size(size);
    run->mutable_repeat()->set_version_sum(1);
    run->mutable_repeat()->set_first_new_storage(10 + 10 * size);
    run->mutable_repeat()->set_same_final_slots(true);
    client_->Send(std::move(message));
    client_->set_version(11 + 10 * size, 1);
    Floats expected = {3, 6, 9, 12};
    expected.resize(1 + size);
    EXPECT_EQ(client_->Read(11 + 10 * size, 1 + size), expected);
  }
  client_->Free({1, 2, 11, 21, 31, 41});
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(SizeHoleTest, SizeBeyondTheStorageIsRefused) {
  Begin(100);
  client_->Define(1, GrowingAddTo());
  RunAt(3);
  EXPECT_EQ(client_
                ->WaitFor([](const v1::ControlResponse& r) {
                  return r.has_poisoned();
                })
                .poisoned()
                .reason(),
            "INVALID_VIEW");
}

TEST_F(SizeHoleTest, NoGraphAtThatSizeIsAViolation) {
  Begin(100);
  client_->Define(1, GrowingAddTo());
  RunAt(-3);
  EXPECT_EQ(ErrorReason(client_->WaitClosed()), "PROTOCOL_VIOLATION");
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(SizeHoleTest, SizeThatAnOperatorRefusesPoisonsTheRun) {
  Begin(100);
  // The operator of x[:2 + n] += y[:2] rejects any n above 0.
  srg::Graph graph = AddTo();
  graph.size_hole = {{1}, {1}};
  client_->Define(1, graph);
  for (int i = 0; i < 2; ++i) {
    RunAt(1);
    EXPECT_EQ(client_->ReadError(1).reason(), "MALFORMED_GRAPH");
    EXPECT_EQ(client_->Read(2, 4), (Floats{10, 20, 30, 40}));
  }
  client_->InstallInline(1, FloatBytes({1, 2, 3, 4}));
  RunAt(0);
  EXPECT_EQ(client_->Read(1, 4), (Floats{11, 22, 3, 4}));
  client_->Free({1, 2});
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(SizeHoleTest, ARepeatOfWhatIsRefusedCountsAsTheRunBefore) {
  Begin(100);
  // x[:1 + n] + y[:2]
  FakeGraph s;
  const uint32_t x = s.Bound(), y = s.Bound(),
                 sum = s.Slot(srg::Slot::Kind::kResult);
  s.Call("fake::add", {FakeGraph::View(x, 1), FakeGraph::View(y, 2)},
         {FakeGraph::View(sum, 1)});
  srg::Graph graph = s.get();
  graph.size_hole = {{1, 7}, {1, 1}};
  client_->Define(1, graph);
  client_->WaitFor(
      [](const v1::ControlResponse& r) { return r.has_admitted(); });
  client_->set_remember(true);
  client_->Run(1, {1, 2, 10});
  client_->set_remember(false);
  for (const int64_t size : {2, 1, 3, 0}) {
    const uint64_t made = 20 + static_cast<uint64_t>(size);
    v1::Ordered message;
    v1::Run* const run = message.mutable_run();
    run->set_graph_id(1);
    run->set_size(size);
    run->mutable_repeat()->set_version_sum(2);
    run->mutable_repeat()->set_first_new_storage(made);
    run->mutable_repeat()->set_same_final_slots(true);
    client_->Send(std::move(message));
    client_->set_version(made, 1);
    if (size > 1) {
      EXPECT_EQ(client_->ReadError(made).reason(), "MALFORMED_GRAPH");
      continue;
    }
    Floats expected = {11, 22};
    expected.resize(1 + size);
    EXPECT_EQ(client_->Read(made, 1 + size), expected);
  }
  client_->Free({1, 2, 10, 20, 21, 22, 23});
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(SizeHoleTest, NoHoleIsAViolation) {
  Begin(100);
  client_->Define(1, AddTo());
  RunAt(1);
  EXPECT_EQ(ErrorReason(client_->WaitClosed()), "PROTOCOL_VIOLATION");
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(SizeHoleTest, AnEvictedGraphIsAskedForOnlyForANewSize) {
  Begin(1);
  client_->Define(1, GrowingAddTo());
  const auto needs = [&] {
    int count = 0;
    for (const v1::ControlResponse& response : client_->responses()) {
      count += response.has_need();
    }
    return count;
  };
  RunAt(1);
  RunAt(1);
  EXPECT_EQ(client_->Read(1, 4), (Floats{21, 42, 63, 4}));
  EXPECT_EQ(needs(), 0);
  RunAt(2);
  EXPECT_TRUE(WaitUntil([&] { return needs() == 1; }));
  client_->Supply(1, GrowingAddTo());
  EXPECT_EQ(client_->Read(1, 4), (Floats{31, 62, 93, 44}));
  // The graph was the same all the time.
  const v1::WorkerState state = core_->Snapshot();
  ASSERT_EQ(state.graphs_size(), 1);
  EXPECT_EQ(state.graphs(0).run_count(), 3u);
}

}  // namespace
}  // namespace djinn::worker
