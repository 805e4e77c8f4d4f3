#include "gpu_worker/plan/run_executor.h"

#include <string>
#include <vector>

#include "common/base/error.h"
#include "gpu_worker/plan/run_fixture.h"

namespace djinn::worker {
namespace {

using ExecutorTest = RunFixture;

TEST_F(ExecutorTest, ANodeMayTakeItsResultAndWhatTheSessionHasLeft) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, 2);
  const auto plan = Admit(s);
  const uint64_t id = Tensor({1, 2});
  quota_.SetLimits({.all = 1000});
  Execute(*plan, MakeRun(*plan, {id}));
  // The operand takes 8 bytes; the result's 8 are reserved.
  EXPECT_EQ(device_.most_bytes(), 992u);
  quota_.SetLimits({.all = 24});
  Execute(*plan, MakeRun(*plan, {id}));
  EXPECT_EQ(device_.most_bytes(), 8u);
}

TEST_F(ExecutorTest, RunsInOrderAndAdvancesVersions) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Add(x, x, 2);
  s.AddInPlace(x, y, 2);
  s.FillInPlace(y, 1, 1);
  const auto plan = Admit(s);
  const uint64_t id = Tensor({1, 2});
  v1::Run run = MakeRun(*plan, {id}, {9});
  Execute(*plan, run);
  EXPECT_EQ(Values(id), (Floats{3, 6}));
  EXPECT_EQ(Values(run.bindings(1).storage()), (Floats{2, 9}));
  EXPECT_EQ(storages_.Find(id)->version, 2u);
  EXPECT_EQ(storages_.Find(run.bindings(1).storage())->version, 2u);
  EXPECT_EQ(quota_.used(), 16u);
  EXPECT_EQ(plan->runs(), 1u);
}

TEST_F(ExecutorTest, AFailurePoisonsWhatDependsOnItAndNothingElse) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t w = s.Bound();
  s.AddInPlace(w, x, 2);  // independent of the failure, and before it
  const uint32_t bad = s.Unary("fake::fail", x, 2);
  const uint32_t derived = s.Add(bad, x, 2);
  const uint32_t good = s.Add(x, x, 2);  // independent, after it
  s.AddInPlace(w, derived, 2);
  (void)good;
  const auto plan = Admit(s);
  const uint64_t xi = Tensor({1, 2});
  const uint64_t wi = Tensor({10, 20});
  const v1::Run run = MakeRun(*plan, {xi, wi});
  Execute(*plan, run);
  const RootError error = OneError();
  EXPECT_EQ(error->operator_name(), "fake::fail");
  EXPECT_EQ(error->node(), 1u);
  EXPECT_EQ(error->operands(), "float32[2]");
  EXPECT_EQ(error->reason(), "OPERATOR_FAILED");
  EXPECT_EQ(error->worker_id(), "w0");
  EXPECT_EQ(error->sequence(), 1u);
  EXPECT_NE(error->error_id(), 0u);
  EXPECT_EQ(Poison(run.bindings(2).storage()), error);
  EXPECT_EQ(Poison(run.bindings(3).storage()), error);
  EXPECT_EQ(Poison(wi), error);
  EXPECT_EQ(storages_.Find(wi)->version, 3u);
  EXPECT_EQ(Poison(xi), nullptr);
  EXPECT_EQ(Values(run.bindings(4).storage()), (Floats{2, 4}));
  EXPECT_EQ(counters_.skipped_nodes, 2u);
}

TEST_F(ExecutorTest, ANodeThatLacksMemoryIsCalledOnceMoreAfterOthersGaveSome) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, 2);
  const auto plan = Admit(s);
  const uint64_t id = Tensor({1, 2});
  const absl::Status lacking = MakeError(absl::StatusCode::kResourceExhausted,
                                         "OUT_OF_MEMORY", "no memory");
  uint64_t asked = 0;
  memory_.SetReclaimer([&](uint64_t bytes) { asked = bytes; });
  int calls = 0;
  device_.SetExecuteHook([&](const std::string&) {
    ++calls;
    return asked > 0 ? absl::OkStatus() : lacking;
  });
  v1::Run run = MakeRun(*plan, {id});
  Execute(*plan, run);
  EXPECT_EQ(calls, 2);
  // The bytes that the node may allocate, fewer than the device has.
  EXPECT_GT(asked, 0);
  EXPECT_LE(asked, uint64_t{1} << 20);
  EXPECT_EQ(counters_.retried_nodes, 1u);
  EXPECT_EQ(counters_.failed_nodes, 0u);
  EXPECT_EQ(Values(run.bindings(1).storage()), (Floats{2, 4}));
  // A second failure is the node's.
  device_.SetExecuteHook([&](const std::string&) {
    ++calls;
    return lacking;
  });
  Execute(*plan, MakeRun(*plan, {id}));
  EXPECT_EQ(calls, 4);
  const RootError error = OneError();
  EXPECT_EQ(error->reason(), "OUT_OF_MEMORY");
  EXPECT_EQ(error->retry_after().seconds(), 1);
  memory_.SetReclaimer(nullptr);
}

TEST_F(ExecutorTest, ANodeThatWritesOrFailsForItsInputIsNotCalledAgain) {
  FakeGraph in_place;
  const uint32_t w = in_place.Bound();
  in_place.AddInPlace(w, w, 2);
  FakeGraph draws;
  draws.Draw(draws.Generator(), 2);
  FakeGraph plain;
  const uint32_t x = plain.Bound();
  plain.Add(x, x, 2);
  const uint64_t a = Tensor({1, 2}), b = Tensor({1, 2});
  const uint64_t generator = SeededGenerator(5);
  int calls = 0;
  const auto fails = [&](const FakeGraph& s, std::vector<uint64_t> bound,
                         const char* reason) {
    const auto plan = Admit(s);
    device_.SetExecuteHook([&](const std::string&) {
      ++calls;
      return MakeError(absl::StatusCode::kResourceExhausted, reason, "no");
    });
    Execute(*plan, MakeRun(*plan, std::move(bound)));
    EXPECT_EQ(OneError()->reason(), reason);
  };
  fails(in_place, {a}, "OUT_OF_MEMORY");
  fails(draws, {generator}, "OUT_OF_MEMORY");
  fails(plain, {b}, "OPERATOR_FAILED");
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(counters_.retried_nodes, 0u);
}

TEST_F(ExecutorTest, OnlyAWholeOverwriteHeals) {
  FakeGraph partial;
  partial.FillInPlace(partial.Bound(), 1);
  FakeGraph whole;
  whole.FillInPlace(whole.Bound(), 2);
  const auto partial_plan = Admit(partial);
  const auto whole_plan = Admit(whole);
  const uint64_t id = Tensor({1, 2});
  const RootError poison = errors_.MakePoison(absl::InternalError("x"), {});
  storages_.Find(id)->poison = poison;
  v1::Run run = MakeRun(*partial_plan, {id}, {7});
  Execute(*partial_plan, run);
  EXPECT_EQ(Poison(id), poison);
  run = MakeRun(*whole_plan, {id}, {8});
  Execute(*whole_plan, run);
  EXPECT_EQ(Poison(id), nullptr);
  EXPECT_EQ(Values(id), (Floats{8, 8}));
}

TEST_F(ExecutorTest, FailedCreationHealsByOverwriteToo) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Unary("fake::fail", x, 2);
  s.FillInPlace(y, 2);
  const auto plan = Admit(s);
  v1::Run run = MakeRun(*plan, {Tensor({1, 2})}, {5});
  Execute(*plan, run);
  EXPECT_EQ(Values(run.bindings(1).storage()), (Floats{5, 5}));
  EXPECT_EQ(Poison(run.bindings(1).storage()), nullptr);
}

TEST_F(ExecutorTest, AGeneratorKeepsItsStateWhenTheDrawIsSkippedOrFails) {
  FakeGraph s;
  const uint32_t g = s.Generator();
  s.Draw(g, 2);
  const auto plan = Admit(s);
  const uint64_t gi = SeededGenerator(5);
  v1::Run run = MakeRun(*plan, {gi});
  device_.SetExecuteHook(
      [](const std::string&) { return absl::InternalError("injected"); });
  Execute(*plan, run);
  EXPECT_NE(Poison(run.bindings(1).storage()), nullptr);
  EXPECT_EQ(Poison(gi), nullptr);
  EXPECT_EQ(storages_.Find(gi)->version, 2u);
  device_.SetExecuteHook(nullptr);
  run = MakeRun(*plan, {gi});
  Execute(*plan, run);
  EXPECT_EQ(Values(run.bindings(1).storage()), (Floats{5, 6}));
  run = MakeRun(*plan, {gi});
  Execute(*plan, run);
  EXPECT_EQ(Values(run.bindings(1).storage()), (Floats{7, 8}));
}

TEST_F(ExecutorTest, AViewOutsideItsStorageOnALaterRunExecutesNothing) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t g = s.Generator();
  s.FillInPlace(x, 1);
  s.Draw(g, 1);
  s.AddInPlace(x, x, 4);
  const auto plan = Admit(s);
  const uint64_t good = Tensor({1, 2, 3, 4});
  const uint64_t small = Tensor({1, 2});
  const uint64_t gi = SeededGenerator(1);
  v1::Run run = MakeRun(*plan, {good, gi}, {0});
  Execute(*plan, run);
  EXPECT_TRUE(errors_.TakeNew().empty());
  run = MakeRun(*plan, {small, gi}, {0});
  Execute(*plan, run);
  const RootError error = OneError();
  EXPECT_EQ(error->reason(), "INVALID_VIEW");
  EXPECT_EQ(error->message(),
            "a view of slot 0 needs 16 bytes, but storage 2 has 8");
  EXPECT_EQ(Poison(small), error);
  EXPECT_EQ(Values(small), (Floats{1, 2}));
  EXPECT_EQ(storages_.Find(small)->version, 3u);
  EXPECT_EQ(Poison(gi), nullptr);
  EXPECT_EQ(storages_.Find(gi)->version, 3u);
  EXPECT_EQ(Poison(run.bindings(2).storage()), error);
}

TEST_F(ExecutorTest, SharedBuffersAreCopiedBeforeAWrite) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.AddInPlace(x, x, 2);
  const auto plan = Admit(s);
  const uint64_t id = Tensor({1, 2});
  const std::shared_ptr<Buffer> shared = storages_.Find(id)->buffer;
  Execute(*plan, MakeRun(*plan, {id}));
  Execute(*plan, MakeRun(*plan, {id}));
  EXPECT_EQ(Values(id), (Floats{4, 8}));
  float first;
  std::memcpy(&first, device_.HostBytes(shared)->bytes.data(), sizeof(first));
  EXPECT_EQ(first, 1);
  EXPECT_EQ(counters_.write_copies, 1u);
}

TEST_F(ExecutorTest, FailedAllocationIsNotCharged) {
  const uint64_t held = Tensor({1, 2});
  FakeGraph s;
  const uint32_t x = s.Created(uint64_t{0} - 8);
  s.FillInPlace(x, 1, 1);
  const auto plan = Admit(s);
  v1::Run run = MakeRun(*plan, {}, {9});
  Execute(*plan, run);
  EXPECT_NE(Poison(run.bindings(0).storage()), nullptr);
  EXPECT_EQ(quota_.used(), 8u);
  EXPECT_EQ(Values(held), (Floats{1, 2}));
}

TEST_F(ExecutorTest, TenTerabytesAreRefusedBeforeAnythingIsAllocated) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t r = s.Slot(srg::Slot::Kind::kResult);
  const int64_t count = (int64_t{10} << 40) / 4;
  s.Call("fake::add", {FakeGraph::View(x, 2), FakeGraph::View(x, 2)},
         {FakeGraph::View(r, count)});
  const auto plan = Admit(s);
  const uint64_t before = device_.live_bytes() + 8;
  Execute(*plan, MakeRun(*plan, {Tensor({1, 2})}));
  const RootError error = OneError();
  EXPECT_EQ(error->code(),
            static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(device_.live_bytes(), before);
  EXPECT_EQ(ledger_.usage().used, 8u);
  EXPECT_EQ(quota_.used(), 8u);
}

TEST_F(ExecutorTest, AWrongShapePoisonsAndShowsBoth) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Unary("fake::wrong_shape", x, 2);
  const auto plan = Admit(s);
  const v1::Run run = MakeRun(*plan, {Tensor({1, 2})});
  Execute(*plan, run);
  const RootError error = OneError();
  EXPECT_EQ(error->reason(), "METADATA_MISMATCH");
  EXPECT_NE(error->message().find("float32[2]"), std::string::npos);
  EXPECT_NE(error->message().find("float32[3]"), std::string::npos);
  EXPECT_EQ(quota_.used(), 8u);
}

TEST_F(ExecutorTest, AResultThatIsItsOperandIsCopiedAndCounted) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Slot(srg::Slot::Kind::kResult);
  // The copy must move the view from its offset to the start.
  s.Call("fake::alias", {FakeGraph::View(x, 2, 1)}, {FakeGraph::View(y, 2)});
  s.FillInPlace(x, 3);
  const auto plan = Admit(s);
  v1::Run run = MakeRun(*plan, {Tensor({1, 2, 3})}, {0});
  Execute(*plan, run);
  EXPECT_TRUE(errors_.TakeNew().empty());
  EXPECT_EQ(Values(run.bindings(1).storage()), (Floats{2, 3}));
  EXPECT_EQ(counters_.alias_copies, 1u);
}

TEST_F(ExecutorTest, AnExceptionIsAFailureLikeAnyOther) {
  FakeGraph s;
  s.Unary("fake::throw", s.Bound(), 1);
  const auto plan = Admit(s);
  Execute(*plan, MakeRun(*plan, {Tensor({1})}));
  const RootError error = OneError();
  EXPECT_EQ(error->message(), "thrown");
}

TEST_F(ExecutorTest, APlanCountsForAtLeastWhatItsMessageTakes) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  for (int i = 0; i < 50; ++i) s.AddInPlace(x, x, 2);
  v1::Graph message = srg::ToProto(s.get());
  EXPECT_GE(Admit(s)->estimated_bytes(), 8 * message.ByteSizeLong());

  GraphCache small({.max_bytes = 8 * message.ByteSizeLong() - 1});
  const auto refused = worker::Admit(message, srg::GraphCaps(), "red", &small,
                                     device_.operators());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(refused.status()), "GRAPH_TOO_LARGE");
  EXPECT_EQ(small.stats().plans, 0u);
}

TEST_F(ExecutorTest, ACancelledRunReportsNoPartOfItsMetadata) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Nonzero(x, 2);
  s.Nonzero(x, 2);
  const auto plan = Admit(s);
  device_.SetExecuteHook([this](const std::string&) {
    cancelled_ = true;
    return absl::OkStatus();
  });
  const v1::RunMetadata metadata =
      Execute(*plan, MakeRun(*plan, {Tensor({1, 2})}));
  EXPECT_EQ(metadata.results_size(), 0);
  EXPECT_EQ(metadata.storage_bytes_size(), 0);
  EXPECT_EQ(metadata.error().reason(), "SESSION_ENDED");
}

TEST_F(ExecutorTest, UnknownResultsReportTheirMetadata) {
  FakeGraph s;
  s.Nonzero(s.Bound(), 4);
  const auto plan = Admit(s);
  const v1::Run run = MakeRun(*plan, {Tensor({0, 1, 0, 1})});
  const v1::RunMetadata metadata = Execute(*plan, run);
  ASSERT_EQ(metadata.results_size(), 1);
  EXPECT_EQ(metadata.results(0).sizes(0), 2);
  EXPECT_EQ(metadata.storage_bytes(0), 8u);
  EXPECT_EQ(Values(run.bindings(1).storage()), (Floats{1, 3}));
}

TEST_F(ExecutorTest, FinalSlotsAreFreedAfterTheirLastUse) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t a = s.Add(x, x, 100);
  const uint32_t b = s.Add(a, a, 100);
  s.Add(b, b, 100);
  const auto plan = Admit(s);
  const uint64_t id = Tensor(Floats(100, 1));
  v1::Run run = MakeRun(*plan, {id});
  run.add_final_slots(1);
  run.add_final_slots(2);
  std::vector<uint64_t> live;
  device_.SetExecuteHook([&](const std::string&) {
    live.push_back(ledger_.usage().used);
    return absl::OkStatus();
  });
  Execute(*plan, run);
  // No more than two results live beside x: an operand and the one being made.
  // The run reserves their room at once.
  EXPECT_EQ(live, (std::vector<uint64_t>{1200, 1200, 1200}));
  EXPECT_EQ(storages_.size(), 2u);
  EXPECT_EQ(quota_.used(), 800u);
  EXPECT_TRUE(storages_.Used(run.bindings(1).storage()));
}

// Checks that a value created in a slot that is known to be a cache is charged
// as one.
TEST_F(ExecutorTest, CachesAreOfTheirOwnPart) {
  quota_.SetLimits({.all = 1 << 20, .storages = 100, .caches = 24});
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t grown = s.Add(x, x, 2);
  s.Add(grown, grown, 2);
  const auto plan = Admit(s);
  // The graph has no slot 77, which SetKind() must ignore.
  plan->SetKind(v1::PHASE_UNSPECIFIED, {grown, 77});
  const uint64_t id = Tensor({1, 2});
  const v1::Run run = MakeRun(*plan, {id});
  Execute(*plan, run);
  EXPECT_EQ(Values(run.bindings(2).storage()), (Floats{4, 8}));
  EXPECT_EQ(quota_.used(StorageClass::kCache).count, 1u);
  EXPECT_EQ(quota_.used(StorageClass::kCache).bytes, 8u);
  EXPECT_EQ(quota_.used(StorageClass::kOwn).bytes, 16u);
  EXPECT_EQ(
      ledger_.usage().by_class[static_cast<size_t>(MemoryClass::kStorages)],
      24u);
  // Two more caches fit. A fourth does not, although the limit for other
  // storages has room.
  Execute(*plan, MakeRun(*plan, {id}));
  Execute(*plan, MakeRun(*plan, {id}));
  const v1::Run refused = MakeRun(*plan, {id});
  Execute(*plan, refused);
  const RootError error = Poison(refused.bindings(1).storage());
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->reason(), "SESSION_MEMORY");
  EXPECT_EQ(
      error->message(),
      "memory of the session for caches: limit 24 bytes, used 24, asked 8");
  EXPECT_EQ(quota_.used(StorageClass::kCache).bytes, 24u);
}

TEST_F(ExecutorTest, StorageFoundToBeACacheIsReclassified) {
  quota_.SetLimits({.all = 1 << 20, .caches = 10});
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Bound();
  s.AddInPlace(x, y, 2);
  const auto plan = Admit(s);
  const uint64_t cache = Tensor({1, 2, 3, 4}), other = Tensor({5, 6, 7, 8});
  Execute(*plan, MakeRun(*plan, {cache, other}));
  EXPECT_EQ(quota_.used(StorageClass::kCache).bytes, 0u);
  plan->SetKind(v1::PHASE_UNSPECIFIED, {x});
  // The reclassification passes the limit but refuses nothing.
  Execute(*plan, MakeRun(*plan, {cache, other}));
  EXPECT_EQ(Values(cache), (Floats{11, 14, 3, 4}));
  EXPECT_EQ(quota_.used(StorageClass::kCache).bytes, 16u);
  EXPECT_EQ(quota_.used(StorageClass::kOwn).bytes, 16u);
  // The next allocation is refused.
  EXPECT_EQ(quota_.Reserve(1).status().message(),
            "memory of the session for caches: limit 10 bytes, used 16, asked "
            "1");
  storages_.Find(cache)->quota.Release();
  EXPECT_TRUE(quota_.Reserve(1).ok());
}

// Checks that a value created and released in the run is no cache.
TEST_F(ExecutorTest, ValueReleasedInTheRunIsNoCache) {
  quota_.SetLimits({.all = 1 << 20, .caches = 8});
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Add(x, x, 2);
  const uint32_t z = s.Add(y, y, 2);
  const auto plan = Admit(s);
  plan->SetKind(v1::PHASE_UNSPECIFIED, {y, z});
  v1::Run run = MakeRun(*plan, {Tensor({1, 2})});
  run.add_final_slots(y);
  Execute(*plan, run);
  EXPECT_EQ(Poison(run.bindings(2).storage()), nullptr);
  EXPECT_EQ(quota_.used(StorageClass::kCache).bytes, 8u);
  EXPECT_EQ(quota_.used(StorageClass::kOwn).bytes, 8u);
}

// Checks that the write leaves the other holder's bytes alone, and that the
// copy counts as a cache.
TEST_F(ExecutorTest, ACacheThatIsCopiedBeforeAWriteIsOne) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.FillInPlace(x, 2);
  const auto plan = Admit(s);
  plan->SetKind(v1::PHASE_UNSPECIFIED, {x});
  const uint64_t id = Tensor({1, 2});
  const std::shared_ptr<Buffer> shared = storages_.Find(id)->buffer;
  storages_.Find(id)->quota.MoveTo(StorageClass::kContent);
  v1::Run run = MakeRun(*plan, {id}, {3});
  Execute(*plan, run);
  EXPECT_EQ(Values(id), (Floats{3, 3}));
  EXPECT_EQ(quota_.used(StorageClass::kContent).bytes, 0u);
  EXPECT_EQ(quota_.used(StorageClass::kCache).bytes, 8u);
}

TEST_F(ExecutorTest, CreatedSlotsAreZero) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t c = s.Created(8);
  s.AddInPlace(c, x, 2);
  const auto plan = Admit(s);
  const v1::Run run = MakeRun(*plan, {Tensor({1, 2})});
  Execute(*plan, run);
  EXPECT_EQ(Values(run.bindings(1).storage()), (Floats{1, 2}));
}

// y = late(x); z = y + y; w = x + x. The failure of y becomes known when the
// run settles.
struct LateGraph {
  FakeGraph s;
  uint32_t x = s.Bound();
  uint32_t y = s.Unary("fake::late", x, 2);
  uint32_t z = s.Add(y, y, 2);
  uint32_t w = s.Add(x, x, 2);
};

TEST_F(ExecutorTest, ALateFailurePoisonsWhatWasMadeOfItAndNothingElse) {
  LateGraph late;
  const auto plan = Admit(late.s);
  const uint64_t id = Tensor({-1, 2});
  const v1::Run run = MakeRun(*plan, {id});
  Execute(*plan, run);
  const RootError error = Poison(run.bindings(1).storage());
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->message(), "failed late");
  EXPECT_EQ(error->operator_name(), "fake::late");
  EXPECT_EQ(error->node(), 0u);
  EXPECT_EQ(Poison(run.bindings(2).storage()), error);
  EXPECT_EQ(Poison(run.bindings(3).storage()), nullptr);
  EXPECT_EQ(Values(run.bindings(3).storage()), (Floats{-2, 4}));
  EXPECT_EQ(Poison(id), nullptr);
  EXPECT_EQ(counters_.failed_nodes, 1u);
  EXPECT_EQ(device_.settled(), 1u);
}

TEST_F(ExecutorTest, RunThatSettlesWithoutErrorPoisonsNothing) {
  LateGraph late;
  const auto plan = Admit(late.s);
  const v1::Run run = MakeRun(*plan, {Tensor({1, 2})});
  Execute(*plan, run);
  EXPECT_EQ(Values(run.bindings(2).storage()), (Floats{2, 4}));
  EXPECT_EQ(device_.settled(), 1u);
  EXPECT_EQ(errors_.count(), 0u);
}

TEST_F(ExecutorTest, ValueOverwrittenAfterALateFailureIsValid) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Unary("fake::late", x, 2);
  const uint32_t z = s.Add(y, y, 2);
  s.FillInPlace(y, 2);
  const uint32_t w = s.Add(y, y, 2);
  const auto plan = Admit(s);
  v1::Run run = MakeRun(*plan, {Tensor({-1, 2})}, {3});
  Execute(*plan, run);
  EXPECT_EQ(Poison(run.bindings(y).storage()), nullptr);
  EXPECT_NE(Poison(run.bindings(z).storage()), nullptr);
  EXPECT_EQ(Values(run.bindings(w).storage()), (Floats{6, 6}));
}

TEST_F(ExecutorTest, LateFailuresKeepThoseThatWereKnown) {
  FakeGraph s;
  const uint32_t x = s.Bound();
  const uint32_t y = s.Unary("fake::late", x, 2);
  const uint32_t f = s.Unary("fake::fail", y, 2);
  const uint32_t g = s.Add(f, f, 2);
  const auto plan = Admit(s);
  const v1::Run run = MakeRun(*plan, {Tensor({-1, 2})});
  Execute(*plan, run);
  EXPECT_EQ(Poison(run.bindings(y).storage())->message(), "failed late");
  EXPECT_EQ(Poison(run.bindings(f).storage())->message(), "told to fail");
  EXPECT_EQ(Poison(run.bindings(g).storage())->message(), "told to fail");
}

TEST_F(ExecutorTest, FailureToSettlePoisonsAllResults) {
  LateGraph late;
  const auto plan = Admit(late.s);
  const uint64_t id = Tensor({1, 2});
  const v1::Run run = MakeRun(*plan, {id});
  device_.SetSettleStatus(absl::UnavailableError("the device is gone"));
  Execute(*plan, run);
  for (int slot = 1; slot <= 3; ++slot) {
    const RootError error = Poison(run.bindings(slot).storage());
    ASSERT_NE(error, nullptr) << slot;
    EXPECT_EQ(error->message(), "the device is gone");
  }
  EXPECT_EQ(Poison(id), nullptr);
}

// Yields after each node. The device breaks after the second node.
class BreakingEdge final : public NodeEdge {
 public:
  explicit BreakingEdge(FakeDevice* device) : device_(device) {
    wanted_ = true;
  }
  void Yield(absl::Duration) override {
    if (++times_ < 2) return;
    device_->SetSettleStatus(absl::UnavailableError("the device is gone"));
  }
  absl::Duration OwnTime() const override { return absl::ZeroDuration(); }
  bool GoesFirst() const override { return false; }
  void PutOff() override {}

 private:
  FakeDevice* const device_;
  int times_ = 0;
};

TEST_F(ExecutorTest, ValuesBeforeADeviceFailureAreValid) {
  LateGraph late;
  const auto plan = Admit(late.s);
  const v1::Run run = MakeRun(*plan, {Tensor({1, 2})});
  BreakingEdge edge(&device_);
  edge_ = &edge;
  Execute(*plan, run);
  EXPECT_EQ(Values(run.bindings(late.y).storage()), (Floats{1, 2}));
  EXPECT_EQ(Poison(run.bindings(late.y).storage()), nullptr);
  EXPECT_EQ(Poison(run.bindings(late.z).storage()), nullptr);
  ASSERT_NE(Poison(run.bindings(late.w).storage()), nullptr);
  EXPECT_EQ(counters_.failed_nodes, 1u);
}

}  // namespace
}  // namespace djinn::worker
