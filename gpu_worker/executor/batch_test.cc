// Tests runs of several sessions that share products: which take part, what
// each computes and what each is charged.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/proto_duration.h"
#include "gpu_worker/testing/batch_fixture.h"

namespace djinn::worker {
namespace {

TEST_F(BatchTest, RunsOfATenantShareTheirProducts) {
  for (int i = 0; i < 3; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
  }
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(4);
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  EXPECT_EQ(Result(clients_[1].get()), (Floats{4, 6}));
  EXPECT_EQ(Result(clients_[2].get()), (Floats{8, 9}));
  EXPECT_EQ(Order(), "Jaaa");
  const std::string metrics = Metrics();
  EXPECT_NE(metrics.find("djinn_batch_runs_sum 3\n"), std::string::npos);
  EXPECT_NE(metrics.find("djinn_batch_rows_sum 6\n"), std::string::npos);
  EXPECT_NE(metrics.find("djinn_batch_tenants_sum 1\n"), std::string::npos);
}

TEST_F(BatchTest, EachIsChargedItsPartAndThePartsAddUp) {
  UploadWeight(Add("s0", "t1", 0));
  UploadWeight(Add("s1", "t1", 1));
  const absl::Duration before0 = Used("s0");
  const absl::Duration before1 = Used("s1");
  Plug();
  Run(clients_[0].get(), /*extra=*/0);
  Run(clients_[1].get(), /*extra=*/2);
  ReleaseWith(3);
  Result(clients_[0].get());
  Result(clients_[1].get());
  // The answers are sent before the turn is charged. The next turn comes after
  // the charge.
  clients_[0]->Meter();
  EXPECT_EQ(Order(), "aaJaa");
  // Each is charged half of the product's four seconds, and a second for each
  // other node.
  EXPECT_EQ(Used("s0") - before0, absl::Seconds(3));
  EXPECT_EQ(Used("s1") - before1, absl::Seconds(5));
  EXPECT_EQ(Used("s0") + Used("s1") + Used("plug"), Busy());
}

TEST_F(BatchTest, TenantsShareProductsWhereBothSaySo) {
  Share({"t1", "t2"});
  Batch({"t1", "t2"});
  UploadWeight(Add("s0", "t1", 0));
  UploadWeight(Add("s1", "t2", 1));
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(3);
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  EXPECT_EQ(Result(clients_[1].get()), (Floats{4, 6}));
  EXPECT_EQ(Order(), "Jaa");
}

TEST_F(BatchTest, NoTenantSharesProductsEager) {
  Share({"t1", "t2"});
  for (const std::vector<std::string>& batching :
       std::vector<std::vector<std::string>>{{}, {"t1"}, {"t2"}}) {
    Batch(batching);
    const std::string suffix = std::to_string(clients_.size());
    TestClient* const a = Add("a" + suffix, "t1", 0);
    TestClient* const b = Add("b" + suffix, "t2", 1);
    UploadWeight(a);
    UploadWeight(b);
    PlugAgain();
    Run(a);
    Run(b);
    ReleaseWith(3);
    EXPECT_EQ(Result(a), (Floats{0, 3}));
    EXPECT_EQ(Result(b), (Floats{4, 6}));
    EXPECT_EQ(Order(), "sasa");
  }
}

TEST_F(BatchTest, StrictRunsShareNothing) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", 0));
  }
  clients_[1]->set_mode(v1::EXECUTION_MODE_STRICT);
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(3);
  for (const auto& client : clients_) Result(client.get());
  EXPECT_EQ(Order(), "sasa");
}

TEST_F(BatchTest, OtherWeightsShareNothing) {
  UploadWeight(Add("s0", "t1", 0), 3);
  UploadWeight(Add("s1", "t1", 1), 5);
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(3);
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  EXPECT_EQ(Result(clients_[1].get()), (Floats{6, 10}));
  EXPECT_EQ(Order(), "sasa");
}

TEST_F(BatchTest, RunsWithLittleInCommonShareNothing) {
  FakeGraph s;
  const uint32_t weight = s.Bound();
  const uint32_t rows = s.Bound();
  const uint32_t own = s.Bound();
  s.Scale(rows, own, 2);
  s.Scale(rows, own, 2);
  s.Scale(rows, weight, 2);
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", 0));
    EXPECT_TRUE(clients_[i]->WaitCompleted(clients_[i]->Define(9, s.get())));
  }
  Plug();
  for (const auto& client : clients_) {
    client->Run(9, {kWeight, kRows, kOther, 60, 61, 62});
  }
  ReleaseWith(3);
  for (const auto& client : clients_) {
    EXPECT_EQ(client->Read(62, 2), (Floats{0, 3}));
  }
  EXPECT_EQ(Order(), "ssssss");
}

TEST_F(BatchTest, AWeightThatARunHasWrittenIsItsOwn) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", 0));
  }
  FakeGraph s;
  const uint32_t weight = s.Bound();
  const uint32_t rows = s.Bound();
  s.Scale(rows, weight, 2);
  s.AddInPlace(weight, rows, 1);
  s.Scale(rows, weight, 2);
  Plug();
  clients_[0]->Define(9, s.get());
  clients_[0]->InstallInline(50, BytesOf({2, 1}));
  clients_[0]->Run(9, {kWeight, 50, 60, 61});
  clients_[1]->Define(9, s.get());
  clients_[1]->InstallInline(50, BytesOf({4, 1}));
  clients_[1]->Run(9, {kWeight, 50, 60, 61});
  ReleaseWith(3);
  EXPECT_EQ(clients_[0]->Read(60, 2), (Floats{6, 3}));
  EXPECT_EQ(clients_[0]->Read(61, 2), (Floats{10, 5}));
  EXPECT_EQ(clients_[1]->Read(60, 2), (Floats{12, 3}));
  EXPECT_EQ(clients_[1]->Read(61, 2), (Floats{28, 7}));
  EXPECT_EQ(Order(), "Jasas");
}

TEST_F(BatchTest, AFailureStaysInItsRun) {
  for (int i = 0; i < 3; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
  }
  FakeGraph s;
  const uint32_t weight = s.Bound();
  const uint32_t rows = s.Bound();
  const uint32_t bad = s.Unary("fake::fail", rows, 2);
  const uint32_t y = s.Scale(bad, weight, 2);
  s.Add(y, rows, 2);
  s.Scale(rows, weight, 2);
  Plug();
  Run(clients_[0].get());
  clients_[1]->Define(9, s.get());
  clients_[1]->Run(9, {kWeight, kRows, 60, 61, 62, 63});
  Run(clients_[2].get());
  ReleaseWith(4);
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  EXPECT_EQ(Result(clients_[2].get()), (Floats{8, 9}));
  EXPECT_EQ(clients_[1]->ReadError(62).operator_name(), "fake::fail");
  // A value that does not derive from the failure is there.
  EXPECT_EQ(clients_[1]->Read(63, 2), (Floats{3, 6}));
}

TEST_F(BatchTest, ProductThatCannotBeJoinedIsExecutedForEach) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
  }
  {
    MutexLock lock(&mu_);
    join_fails_ = true;
  }
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(3);
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  EXPECT_EQ(Result(clients_[1].get()), (Floats{4, 6}));
  EXPECT_EQ(Order(), "Jssaa");
}

TEST_F(BatchTest, CancelledMemberLeavesTheOthersUnchanged) {
  for (int i = 0; i < 3; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
  }
  Plug();
  for (const auto& client : clients_) Run(client.get());
  // The session forgets runs that wait behind this one as soon as it learns of
  // the cancellation.
  Run(clients_[1].get(), 0, kFirstResult + 10);
  at_joined_ = [this] {
    clients_[1]->SendCancel();
    EXPECT_TRUE(
        WaitUntil([this] { return core_->Snapshot().queued_runs() == 3; }));
  };
  ReleaseWith(5);
  EXPECT_TRUE(clients_[1]
                  ->WaitFor([](const v1::ControlResponse& response) {
                    return response.has_cancelled();
                  })
                  .has_cancelled());
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  EXPECT_EQ(Result(clients_[2].get()), (Floats{8, 9}));
  EXPECT_EQ(Order(), "Jaa");
}

TEST_F(BatchTest, ASessionThatEndsInTheMiddleLeavesTheOthersAsTheyAre) {
  for (int i = 0; i < 3; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
  }
  Plug();
  for (const auto& client : clients_) Run(client.get());
  at_joined_ = [this] {
    v1::DesiredState desired;
    desired.add_drop_session_ids("s1");
    core_->Apply(desired);
  };
  ReleaseWith(4);
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  EXPECT_EQ(Result(clients_[2].get()), (Floats{8, 9}));
  EXPECT_EQ(ErrorReason(clients_[1]->WaitClosed()), "SESSION_DROPPED");
  EXPECT_EQ(Order(), "Jaa");
}

TEST_F(BatchTest, SessionWithoutCreditIsNotInTheBatch) {
  UploadWeight(Add("s0", "t1", 0));
  UploadWeight(Add("s1", "t1", 1));
  Plug();
  v1::LeaseClaims poor = Lease("s1", "t1");
  *poor.mutable_credits()->mutable_device_time() =
      ToProtoDuration(absl::ZeroDuration());
  Grant(poor, 100'000);
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(3);
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  EXPECT_EQ(Order(), "sa");
}

TEST_F(BatchTest, LowerPriorityRunsDoNotJoin) {
  batch_class_ = {"s1"};
  UploadWeight(Add("s0", "t1", 0));
  UploadWeight(Add("s1", "t1", 1));
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(3);
  for (const auto& client : clients_) Result(client.get());
  EXPECT_EQ(Order(), "sasa");
}

TEST_F(BatchTest, ATenantTakesNoPartBeyondItsShareWhileAnotherWaits) {
  Share({"t1", "t2", "t3"});
  Batch({"t1", "t2", "t3"});
  weights_["s1"] = 0.1;
  UploadWeight(Add("s0", "t1", 0));
  UploadWeight(Add("s1", "t2", 1));
  // This session would take part if it had the same weight.
  UploadWeight(Add("s2", "t3", 2), 5);
  Plug();
  for (size_t i = 0; i < 3; ++i) {
    clients_[i]->Define(1, Step());
    const uint64_t end = kFirstResult + 2 * (i == 2 ? 12 : 5);
    for (uint64_t result = kFirstResult; result < end; result += 2) {
      clients_[i]->Run(1, {kWeight, kRows, kOther, result, result + 1});
    }
  }
  ReleaseWith(1 + 5 + 5 + 12);
  Result(clients_[0].get(), kFirstResult + 2 * 4);
  // The second session joins twice while it is ahead by no more than a turn,
  // and not a third time.
  const std::string order = Order();
  EXPECT_EQ(std::count(order.begin(), order.end(), 'J'), 2);
}

TEST_F(BatchTest, SharedTurnHasTheHighestPriorityOfItsMembers) {
  Share({"t1", "t2"});
  Batch({"t1", "t2"});
  batch_class_ = {"s0"};
  UploadWeight(Add("s0", "t1", 0));
  UploadWeight(Add("s1", "t2", 1));
  TestClient* const late = Add("s2", "t3", 2);
  EXPECT_TRUE(late->WaitCompleted(late->Define(9, Fill())));
  late->Read(kRows, 2);
  Plug();
  for (int i = 0; i < 2; ++i) {
    clients_[i]->Define(1, Step());
    for (uint64_t result = kFirstResult; result < kFirstResult + 4;
         result += 2) {
      clients_[i]->Run(1, {kWeight, kRows, kOther, result, result + 1});
    }
  }
  at_joined_ = [this, late] {
    const uint32_t before = core_->Snapshot().queued_runs();
    late->Run(9, {kRows}, {1});
    EXPECT_TRUE(WaitReceived(before + 1, late));
    at_joined_ = nullptr;
  };
  ReleaseWith(5);
  // at_joined_ sends the run.
  EXPECT_TRUE(WaitUntil([this] {
    MutexLock lock(&mu_);
    return at_joined_ == nullptr;
  }));
  EXPECT_EQ(late->Read(kRows, 2), (Floats{1, 1}));
  // Whichever has the first turn, t1 leads one that is shared.
  const std::string order = Order();
  EXPECT_EQ(order.substr(order.find('J'), 3), "Jaa") << order;
}

TEST_F(BatchTest, NoMoreRunsTakePartThanTheWorkerLets) {
  WorkerCoreOptions options;
  options.max_batch_runs = 2;
  Start(options);
  for (int i = 0; i < 4; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
  }
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(5);
  for (const auto& client : clients_) Result(client.get());
  EXPECT_EQ(Order(), "JaaJaa");
}

TEST_F(BatchTest, OneAtMostMeansNone) {
  WorkerCoreOptions options;
  options.max_batch_runs = 1;
  Start(options);
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", 0));
  }
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(3);
  for (const auto& client : clients_) Result(client.get());
  EXPECT_EQ(Order(), "sasa");
}

TEST_F(BatchTest, EachDrawsFromItsOwnGenerator) {
  FakeGraph s;
  const uint32_t weight = s.Bound();
  const uint32_t generator = s.Generator();
  s.Scale(s.Draw(generator, 2), weight, 2);
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", 0));
    clients_[i]->InstallSeed(40, 10 * static_cast<uint64_t>(i));
    EXPECT_TRUE(clients_[i]->WaitCompleted(clients_[i]->Define(9, s.get())));
  }
  Plug();
  for (const auto& client : clients_) {
    client->Run(9, {kWeight, 40, 60, 61});
    client->Run(9, {kWeight, 40, 70, 71});
  }
  ReleaseWith(5);
  EXPECT_EQ(clients_[0]->Read(61, 2), (Floats{0, 3}));
  EXPECT_EQ(clients_[0]->Read(71, 2), (Floats{6, 9}));
  EXPECT_EQ(clients_[1]->Read(61, 2), (Floats{30, 33}));
  EXPECT_EQ(clients_[1]->Read(71, 2), (Floats{36, 39}));
}

TEST_F(BatchTest, AReadBehindTheRunIsAnsweredInTheSameTurn) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
  }
  Plug();
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  std::vector<uint64_t> reads;
  for (const auto& client : clients_) {
    Run(client.get());
    reads.push_back(client->SendRead(kFirstResult + 1, view));
  }
  // Behind the reads, sends a run that would get the next turn.
  Run(clients_[0].get(), 0, kFirstResult + 10);
  ReleaseWith(4);
  for (size_t i = 0; i < 2; ++i) clients_[i]->WaitRead(reads[i]);
  EXPECT_EQ(Result(clients_[0].get(), kFirstResult + 10), (Floats{0, 3}));
  EXPECT_EQ(Order(), "Jaasa");
}

TEST_F(BatchTest, FreedStorageDoesNotKeepARunOutOfTheBatch) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
    clients_[i]->Create(40, 8);
    // The second session uses more in its first turn, and does not lead the
    // next.
    EXPECT_TRUE(clients_[i]->WaitCompleted(
        clients_[i]->Define(1, Step(/*extra=*/2 * i))));
    EXPECT_TRUE(clients_[i]->WaitCompleted(clients_[i]->Define(2, Step())));
  }
  Plug();
  for (const auto& client : clients_) {
    client->Run(1, {kWeight, kRows, kOther, 60, 61});
    client->Free({40});
    client->Run(2, {kWeight, kRows, kOther, 70, 71});
  }
  ReleaseWith(5);
  EXPECT_EQ(clients_[0]->Read(71, 2), (Floats{0, 3}));
  EXPECT_EQ(clients_[1]->Read(71, 2), (Floats{7, 6}));
  EXPECT_EQ(Order(), "aaJaaJaa");
}

// The other session would be charged for freeing much in its turn.
TEST_F(BatchTest, LargeFreesWaitForTheirOwnTurn) {
  std::vector<uint64_t> many(65);
  std::iota(many.begin(), many.end(), 100);
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
    for (const uint64_t storage : many) {
      clients_[i]->Create(storage, 8);
      // Keeps the messages within the window.
      if (storage % 16 == 0) clients_[i]->Read(kRows, 2);
    }
    EXPECT_TRUE(clients_[i]->WaitCompleted(
        clients_[i]->Define(1, Step(/*extra=*/2 * i))));
    EXPECT_TRUE(clients_[i]->WaitCompleted(clients_[i]->Define(2, Step())));
    clients_[i]->Read(kRows, 2);
  }
  Plug();
  for (const auto& client : clients_) {
    client->Run(1, {kWeight, kRows, kOther, 60, 61});
    client->Free(many);
    client->Run(2, {kWeight, kRows, kOther, 70, 71});
  }
  ReleaseWith(5);
  EXPECT_EQ(clients_[0]->Read(71, 2), (Floats{0, 3}));
  EXPECT_EQ(clients_[1]->Read(71, 2), (Floats{7, 6}));
  const std::string order = Order();
  EXPECT_EQ(std::count(order.begin(), order.end(), 'J'), 1) << order;
}

TEST_F(BatchTest, AReadBehindWhatIsFreedIsAnsweredInTheSameTurn) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
    EXPECT_TRUE(clients_[i]->WaitCompleted(clients_[i]->Create(40, 8)));
  }
  Plug();
  // After the shared turn this session has used less than the other one, and
  // has a run that gets the next turn.
  Run(clients_[0].get());
  Run(clients_[0].get(), 0, kFirstResult + 10);
  Run(clients_[1].get(), /*extra=*/2);
  clients_[1]->Free({40});
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  const uint64_t read = clients_[1]->SendRead(kFirstResult + 1, view);
  bool answered = false;
  at_plain_ = [&] {
    clients_[1]->WaitRead(read);
    answered = true;
  };
  // Waits for the graph, the run, the Free and the read.
  EXPECT_TRUE(WaitUntil([&] {
    const v1::WorkerState state = core_->Snapshot();
    for (const v1::HeldSession& held : state.sessions()) {
      if (IdOf(held) == "s1") return held.use().outstanding() == 4;
    }
    return false;
  }));
  ReleaseWith(4);
  EXPECT_EQ(Result(clients_[0].get(), kFirstResult + 10), (Floats{0, 3}));
  EXPECT_EQ(Order(), "aaJaasa");
  EXPECT_TRUE(answered);
}

TEST_F(BatchTest, AStreamThatBreaksMeanwhileIsTakenUpAgain) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
  }
  Plug();
  for (const auto& client : clients_) Run(client.get());
  EXPECT_TRUE(WaitUntil([&] { return core_->Snapshot().queued_runs() == 3; }));
  Break(clients_[1].get());
  Release();
  EXPECT_EQ(Result(clients_[0].get()), (Floats{0, 3}));
  Resume(clients_[1].get(), "s1");
  EXPECT_EQ(Result(clients_[1].get()), (Floats{4, 6}));
  EXPECT_EQ(Order(), "Jaa");
}

// y = rows * weight; z = y + other, after an addition that has a size hole.
srg::Graph GrowingStep() {
  FakeGraph s;
  const uint32_t weight = s.Bound();
  const uint32_t rows = s.Bound();
  const uint32_t other = s.Bound();
  s.AddInPlace(other, other, 1);
  s.Add(s.Scale(rows, weight, 2), other, 2);
  srg::Graph graph = s.get();
  // The sizes of the addition's operands.
  graph.size_hole = {{1, 4}, {1, 1}};
  return graph;
}

TEST_F(BatchTest, SessionWithoutAPlanIsNotAwaited) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
    EXPECT_TRUE(
        clients_[i]->WaitCompleted(clients_[i]->Define(9, GrowingStep())));
  }
  Plug();
  // The second session has used more, and does not lead the next turn.
  Run(clients_[1].get());
  ReleaseWith(2);
  EXPECT_EQ(Result(clients_[1].get()), (Floats{4, 6}));
  PlugAgain();
  const auto run = [](TestClient* client, int64_t size, uint64_t result) {
    client->set_run_size(size);
    client->Run(9, {kWeight, kRows, kOther, result, result + 1});
    client->set_run_size(0);
  };
  // There is no plan of size 1 yet. It is made in a turn of its session, in
  // which the other session's second run takes part.
  run(clients_[0].get(), 0, 60);
  run(clients_[1].get(), 1, 60);
  run(clients_[0].get(), 0, 70);
  ReleaseWith(4);
  EXPECT_EQ(clients_[0]->Read(71, 2), (Floats{0, 3}));
  EXPECT_EQ(clients_[1]->Read(61, 2), (Floats{5, 6}));
  EXPECT_EQ(Order(), "asaaaJaa");
}

TEST_F(BatchTest, WhoseTurnItIsHasAPlanMade) {
  for (int i = 0; i < 2; ++i) {
    UploadWeight(Add("s" + std::to_string(i), "t1", static_cast<float>(i)));
    EXPECT_TRUE(
        clients_[i]->WaitCompleted(clients_[i]->Define(9, GrowingStep())));
    clients_[i]->set_run_size(1);
  }
  Plug();
  for (const auto& client : clients_) {
    client->Run(9, {kWeight, kRows, kOther, 60, 61});
  }
  ReleaseWith(3);
  EXPECT_EQ(clients_[0]->Read(61, 2), (Floats{0, 3}));
  EXPECT_EQ(clients_[1]->Read(61, 2), (Floats{5, 6}));
  EXPECT_EQ(Order(), "aaJaa");
}

}  // namespace
}  // namespace djinn::worker
