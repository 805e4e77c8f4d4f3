// Tests runs that yield between two of their nodes: to which run, how often,
// and what each is charged.
#include "gpu_worker/executor/preemption.h"

#include <memory>
#include <string>

#include "common/base/proto_duration.h"
#include "common/log/log.h"
#include "common/srg/canonical.h"
#include "gpu_worker/testing/node_hook.h"

namespace djinn::worker {
namespace {

class PreemptionTest : public NodeHookTest {
 protected:
  std::unique_ptr<TestClient> OpenAs(const std::string& session,
                                     const std::string& tenant,
                                     v1::PriorityClass priority,
                                     absl::Duration run_deadline = {}) {
    v1::LeaseClaims lease = LeaseWithDeadline(session, tenant, run_deadline);
    lease.mutable_urgency()->set_priority_class(priority);
    lease.mutable_limits()->set_memory_bytes(12 << 20);
    std::unique_ptr<TestClient> client = OpenToAdd(lease);
    client->Define(1, Short());
    // The read shows that the session is there.
    EXPECT_EQ(client->Read(kOne, 1), Floats{1});
    return client;
  }
  // Runs a graph that adds one `nodes` times.
  static void RunLong(TestClient* client, int nodes) {
    client->Define(2, Long(nodes));
    client->Run(2, {kSum, kOne});
  }
  // Has the coordinator classify runs of this many nodes as training.
  void TellTraining(int nodes) { Tell(Long(nodes), v1::PHASE_TRAINING); }
  void Tell(const srg::Graph& srg_graph, v1::Phase phase) {
    v1::DesiredState desired = Agreed();
    v1::GraphPhase* const known = desired.add_graph_phases();
    known->set_fingerprint(srg::Fingerprint(srg_graph));
    known->set_phase(phase);
    core_->Apply(desired);
  }
  // Returns the graph that RunShort() runs.
  static srg::Graph Short() {
    FakeGraph fill;
    fill.FillInPlace(fill.Bound(), 1);
    return fill.get();
  }
  // Sends a run of one node, which the worker has received when this returns.
  void RunShort(TestClient* client) {
    const uint32_t before = core_->Snapshot().queued_runs();
    client->Run(1, {kSum}, {7});
    EXPECT_TRUE(WaitReceived(before + 1, client));
  }

  // Waits until the clients' turns are charged. Answers are sent before the
  // charge; the next turn comes after it.
  static void Account(std::initializer_list<TestClient*> clients) {
    for (TestClient* const client : clients) client->Meter();
  }
  // Waits until the metrics have the line. A run is counted after its session
  // knows of it.
  bool MetricsSay(const std::string& line) {
    return WaitUntil([&] { return Metrics().find(line) != std::string::npos; });
  }
};

TEST_F(PreemptionTest, InteractiveRunPreemptsABatchRunWhichThenContinues) {
  const auto batch = OpenAs("batch", "t1", v1::PRIORITY_CLASS_BATCH);
  const auto quick = OpenAs("quick", "t2", v1::PRIORITY_CLASS_INTERACTIVE);
  Before(2, [&] { RunShort(quick.get()); });
  RunLong(batch.get(), 6);
  EXPECT_EQ(batch->Read(kSum, 1), Floats{6});
  EXPECT_EQ(quick->Read(kSum, 1), Floats{7});
  EXPECT_EQ(Order(), "aaafaaa");
  EXPECT_TRUE(MetricsSay(
      "djinn_preemptions_total{preemptor_tenant=\"t2\",victim_tenant=\"t1\","
      "reason=\"higher_priority\"} 1\n"));
  EXPECT_TRUE(MetricsSay("djinn_preemption_duration_seconds_sum 1\n"));
}

TEST_F(PreemptionTest, TheReportSaysWhoWentFirst) {
  const auto batch = OpenAs("batch-session", "t1", v1::PRIORITY_CLASS_BATCH);
  const auto quick =
      OpenAs("quick-session", "t2", v1::PRIORITY_CLASS_INTERACTIVE);
  Before(2, [&] { RunShort(quick.get()); });
  Before(5, [&] { RunShort(quick.get()); });
  RunLong(batch.get(), 6);
  EXPECT_EQ(batch->Read(kSum, 1), Floats{6});
  EXPECT_EQ(Order(), "aaafaafa");
  clock_.Advance(absl::Seconds(30));
  const v1::WorkerState state = core_->Snapshot();
  ASSERT_EQ(state.sessions_size(), 2);
  const v1::Yielded& yielded = state.sessions(0).yielded();
  EXPECT_EQ(yielded.count(), 2u);
  EXPECT_EQ(yielded.time().seconds(), 2);
  EXPECT_EQ(yielded.last_tenant(), "t2");
  EXPECT_EQ(yielded.last_session_id(), log::ShortId("quick-session"));
  EXPECT_EQ(yielded.last_reason(), "higher_priority");
  // The run has executed a node of its own since then.
  EXPECT_EQ(yielded.last_age().seconds(), 31);
  EXPECT_FALSE(state.sessions(1).has_yielded());
}

TEST_F(PreemptionTest, EachIsChargedItsOwnTime) {
  const auto batch = OpenAs("batch", "t1", v1::PRIORITY_CLASS_BATCH);
  const auto quick = OpenAs("quick", "t2", v1::PRIORITY_CLASS_INTERACTIVE);
  Before(2, [&] {
    for (int i = 0; i < 2; ++i) RunShort(quick.get());
  });
  RunLong(batch.get(), 6);
  EXPECT_EQ(batch->Read(kSum, 1), Floats{6});
  Account({batch.get(), quick.get()});
  EXPECT_EQ(Used("batch"), absl::Seconds(6));
  EXPECT_EQ(Used("quick"), absl::Seconds(2));
  const v1::WorkerState state = core_->Snapshot();
  EXPECT_EQ(FromProtoDuration(state.executed().device_time()),
            absl::Seconds(8));
  absl::Duration of_plans;
  for (const v1::HeldGraph& graph : state.graphs()) {
    of_plans += FromProtoDuration(graph.device_time());
  }
  EXPECT_EQ(of_plans, absl::Seconds(8));
}

TEST_F(PreemptionTest, TrainingYieldsWithoutBeingTold) {
  const auto trainer = OpenAs("trainer", "t1", v1::PRIORITY_CLASS_UNSPECIFIED);
  const auto quick = OpenAs("quick", "t2", v1::PRIORITY_CLASS_UNSPECIFIED);
  Before(2, [&] { RunShort(quick.get()); });
  RunLong(trainer.get(), 6);
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{6});
  EXPECT_EQ(quick->Read(kSum, 1), Floats{7});
  // The run was not known to be training.
  EXPECT_EQ(Order(), "aaaaaaf");
  TellTraining(6);
  Before(9, [&] { RunShort(quick.get()); });
  trainer->Run(2, {kSum, kOne});
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{12});
  EXPECT_EQ(Order(), "aaaaaafaaafaaa");
}

TEST_F(PreemptionTest, WaitingRunPreemptsTraining) {
  const auto trainer = OpenAs("trainer", "t1", v1::PRIORITY_CLASS_UNSPECIFIED);
  const auto quick = OpenAs("quick", "t1", v1::PRIORITY_CLASS_UNSPECIFIED);
  const auto other = OpenAs("other", "t1", v1::PRIORITY_CLASS_UNSPECIFIED);
  RunLong(trainer.get(), 3);
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{3});
  TellTraining(3);
  trainer->Run(2, {kSum, kOne});
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{6});
  Account({trainer.get()});
  const size_t from = Order().size();
  // All wait for the end of this run, the trainer the longest.
  Before(from, [&] {
    const uint32_t before = core_->Snapshot().queued_runs();
    trainer->Run(2, {kSum, kOne});
    EXPECT_TRUE(WaitReceived(before + 1, trainer.get()));
    RunShort(quick.get());
  });
  other->Run(1, {kSum}, {7});
  EXPECT_EQ(other->Read(kSum, 1), Floats{7});
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{9});
  EXPECT_EQ(quick->Read(kSum, 1), Floats{7});
  EXPECT_EQ(Order().substr(from), "ffaaa");
}

TEST_F(PreemptionTest, ADeclaredClassCountsWhateverRuns) {
  const auto trainer = OpenAs("trainer", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  const auto quick = OpenAs("quick", "t2", v1::PRIORITY_CLASS_INTERACTIVE);
  RunLong(trainer.get(), 4);
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{4});
  TellTraining(4);
  Before(5, [&] { RunShort(quick.get()); });
  trainer->Run(2, {kSum, kOne});
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{8});
  EXPECT_EQ(quick->Read(kSum, 1), Floats{7});
  EXPECT_EQ(Order(), "aaaaaaaaf");
}

TEST_F(PreemptionTest, TrainingSessionIsInteractiveAgainAfterItsNextRun) {
  const auto trainer = OpenAs("trainer", "t1", v1::PRIORITY_CLASS_UNSPECIFIED);
  const auto quick = OpenAs("quick", "t2", v1::PRIORITY_CLASS_UNSPECIFIED);
  RunLong(trainer.get(), 3);
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{3});
  TellTraining(3);
  trainer->Run(2, {kSum, kOne});
  trainer->Define(3, Long(5));
  Before(7, [&] { RunShort(quick.get()); });
  trainer->Run(3, {kSum, kOne});
  EXPECT_EQ(trainer->Read(kSum, 1), Floats{11});
  EXPECT_EQ(quick->Read(kSum, 1), Floats{7});
  EXPECT_EQ(Order(), "aaaaaaaaaaaf");
}

TEST_F(PreemptionTest, EqualPriorityDoesNotPreempt) {
  for (const auto priority :
       {v1::PRIORITY_CLASS_BATCH, v1::PRIORITY_CLASS_INTERACTIVE}) {
    const std::string name = std::to_string(priority);
    const auto first = OpenAs("first" + name, "t1", priority);
    const auto second = OpenAs("second" + name, "t2", priority);
    const size_t from = Order().size();
    Before(from + 1, [&] { RunShort(second.get()); });
    RunLong(first.get(), 4);
    EXPECT_EQ(first->Read(kSum, 1), Floats{4});
    EXPECT_EQ(second->Read(kSum, 1), Floats{7});
    EXPECT_EQ(Order().substr(from), "aaaaf");
  }
}

TEST_F(PreemptionTest, AShortRunDoesNotWaitForALongOneOfItsClass) {
  for (const bool known : {false, true}) {
    SCOPED_TRACE(known);
    WorkerCoreOptions options;
    options.tokens_first = known;
    Start(options);
    node_milliseconds_ = 2;
    constexpr int kNodes = 20;
    const std::string suffix = known ? "2" : "1";
    const auto neighbour =
        OpenAs("a" + suffix, "t1", v1::PRIORITY_CLASS_INTERACTIVE);
    const auto small =
        OpenAs("b" + suffix, "t2", v1::PRIORITY_CLASS_INTERACTIVE);
    // The worker learns how long both take from their second runs.
    neighbour->Define(2, Long(kNodes));
    for (int i = 0; i < 2; ++i) {
      neighbour->Run(2, {kSum, kOne});
      neighbour->Read(kSum, 1);
      small->Run(1, {kSum}, {7});
      small->Read(kSum, 1);
    }
    Account({neighbour.get(), small.get()});
    const size_t from = Order().size();
    Before(from + 2, [&] { RunShort(small.get()); });
    neighbour->Run(2, {kSum, kOne});
    neighbour->Read(kSum, 1);
    small->Read(kSum, 1);
    EXPECT_EQ(Order().substr(from).find('f'), known ? 3 : kNodes);
  }
}

TEST_F(PreemptionTest, ATenantThatHasHadMoreWaits) {
  const auto batch = OpenAs("batch", "t1", v1::PRIORITY_CLASS_BATCH);
  const auto quick = OpenAs("quick", "t2", v1::PRIORITY_CLASS_INTERACTIVE);
  Before(0, [&] {
    for (int i = 0; i < 3; ++i) RunShort(quick.get());
  });
  RunLong(batch.get(), 6);
  EXPECT_EQ(batch->Read(kSum, 1), Floats{6});
  // The tenants alternate second by second, and the higher priority is served
  // first when they are even.
  EXPECT_EQ(Order(), "afafafaaa");
}

TEST_F(PreemptionTest, ARunYieldsSoOftenAndNoMore) {
  const auto batch = OpenAs("batch", "t1", v1::PRIORITY_CLASS_BATCH);
  const auto quick = OpenAs("quick", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  constexpr int kRuns = Preemption::Rule::kMost + 10;
  Before(0, [&] {
    for (int i = 0; i < kRuns; ++i) RunShort(quick.get());
  });
  RunLong(batch.get(), 100);
  EXPECT_EQ(batch->Read(kSum, 1), Floats{100});
  std::string expected;
  for (int i = 0; i < Preemption::Rule::kMost; ++i) expected += "af";
  expected.append(100 - Preemption::Rule::kMost, 'a');
  expected.append(10, 'f');
  quick->Read(kSum, 1);
  EXPECT_EQ(Order(), expected);
}

TEST_F(PreemptionTest, ARunThatEndsMeanwhileIsNotGoneOnWith) {
  const auto batch = OpenAs("batch", "t1", v1::PRIORITY_CLASS_BATCH);
  const auto quick = OpenAs("quick", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  Before(1, [&] { RunShort(quick.get()); });
  Before(2, [&] {
    v1::DesiredState desired;
    desired.add_drop_session_ids("batch");
    core_->Apply(desired);
  });
  RunLong(batch.get(), 6);
  EXPECT_EQ(ErrorReason(batch->WaitClosed()), "SESSION_DROPPED");
  EXPECT_EQ(quick->Read(kSum, 1), Floats{7});
  core_->Shutdown();
  // At most the node that was about to begin is executed.
  EXPECT_EQ(Order().substr(0, 3), "aaf");
  EXPECT_LE(Order().size(), 4u);
}

TEST_F(PreemptionTest, PreemptingRunIsPreempted) {
  const auto batch = OpenAs("batch", "t1", v1::PRIORITY_CLASS_BATCH);
  const auto quick = OpenAs("quick", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  const auto now = OpenAs("now", "t1", v1::PRIORITY_CLASS_REALTIME);
  Before(1, [&] {
    const uint32_t before = core_->Snapshot().queued_runs();
    RunLong(quick.get(), 3);
    EXPECT_TRUE(WaitReceived(before + 1, quick.get()));
  });
  Before(3, [&] { RunShort(now.get()); });
  RunLong(batch.get(), 3);
  EXPECT_EQ(batch->Read(kSum, 1), Floats{3});
  EXPECT_EQ(quick->Read(kSum, 1), Floats{3});
  EXPECT_EQ(now->Read(kSum, 1), Floats{7});
  // Two nodes of the long run, then two of the quick one, and the last of each.
  EXPECT_EQ(Order(), "aaaafaa");
  Account({batch.get(), quick.get(), now.get()});
  EXPECT_EQ(Used("batch"), absl::Seconds(3));
  EXPECT_EQ(Used("quick"), absl::Seconds(3));
  EXPECT_EQ(Used("now"), absl::Seconds(1));
}

TEST_F(PreemptionTest, AValueIsReadBehindItsRun) {
  const auto a = OpenAs("a", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  const auto b = OpenAs("b", "t2", v1::PRIORITY_CLASS_INTERACTIVE);
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = {1};
  view.strides = {1};
  uint64_t read = 0;
  Before(0, [&] {
    read = a->SendRead(kSum, view);
    a->Run(1, {kSum}, {7});
    EXPECT_TRUE(
        WaitUntil([&] { return core_->Snapshot().queued_runs() == 2; }));
    RunShort(b.get());
  });
  // The answer comes before the run of the other tenant, which has had less.
  bool answered = false;
  Before(3, [&] { answered = a->WaitRead(read).value().size() == 4; });
  RunLong(a.get(), 3);
  ASSERT_TRUE(WaitUntil([&] { return Order() == "aaaff"; }));
  EXPECT_TRUE(answered);
}

// Prompts have ten nodes and tokens one, and their phases are known. Each
// client had a token made before.
class TokensFirstTest : public PreemptionTest {
 protected:
  static constexpr int kPrompt = 10;

  std::unique_ptr<TestClient> OpenKnown(
      const std::string& session, const std::string& tenant,
      v1::PriorityClass priority = v1::PRIORITY_CLASS_INTERACTIVE) {
    auto client = OpenAs(session, tenant, priority);
    client->Define(2, Long(kPrompt));
    // The read shows that both graphs are defined.
    client->Read(kOne, 1);
    Tell(Short(), v1::PHASE_LLM_DECODE);
    Tell(Long(kPrompt), phase_);
    client->Run(1, {kSum}, {0});
    EXPECT_EQ(client->Read(kSum, 1), Floats{0});
    // Tenants take turns by what each has had.
    Account({client.get()});
    return client;
  }
  void RunPrompt(TestClient* client) { client->Run(2, {kSum, kOne}); }
  // Returns how long a token waits that arrives with the prompt's third node.
  absl::Duration WaitBehindPrompt(TestClient* prompter, TestClient* talker) {
    const size_t from = Order().size();
    Before(from + 2, [&] { RunShort(talker); });
    RunPrompt(prompter);
    prompter->Read(kSum, 1);
    talker->Read(kSum, 1);
    const std::string order = Order().substr(from);
    EXPECT_EQ(order.size(), kPrompt + 1);
    // Each node takes a second, and no time passes otherwise.
    return absl::Seconds(static_cast<int64_t>(order.find('f')) - 2);
  }

  v1::Phase phase_ = v1::PHASE_LLM_PREFILL;
};

TEST_F(TokensFirstTest, ATokenDoesNotWaitForAnothersPrompt) {
  WorkerCoreOptions options;
  options.tokens_first = false;
  Start(options);
  {
    const auto prompter = OpenKnown("p1", "t1");
    const auto talker = OpenKnown("d1", "t2");
    EXPECT_EQ(WaitBehindPrompt(prompter.get(), talker.get()),
              absl::Seconds(kPrompt - 2));
  }
  Start({});
  const auto prompter = OpenKnown("p2", "t1");
  const auto talker = OpenKnown("d2", "t2");
  EXPECT_EQ(WaitBehindPrompt(prompter.get(), talker.get()), absl::Seconds(1));
  EXPECT_TRUE(MetricsSay(
      "djinn_preemptions_total{preemptor_tenant=\"t2\",victim_tenant=\"t1\","
      "reason=\"phase\"} 1\n"));
  const v1::WorkerState state = core_->Snapshot();
  for (const v1::HeldSession& held : state.sessions()) {
    if (!held.has_yielded()) continue;
    EXPECT_EQ(held.yielded().last_reason(), "phase");
    EXPECT_EQ(held.yielded().last_session_id(), log::ShortId("d2"));
  }
  Account({prompter.get(), talker.get()});
  EXPECT_EQ(Used("p2"), absl::Seconds(kPrompt + 1));
  EXPECT_EQ(Used("d2"), absl::Seconds(2));
}

TEST_F(TokensFirstTest, HowSoonResultsComeIsCounted) {
  const auto client = OpenKnown("d", "t1");
  RunPrompt(client.get());
  client->Read(kSum, 1);
  // A second read of the same value is not a result.
  client->Read(kSum, 1);
  for (int i = 0; i < 2; ++i) {
    client->Run(1, {kSum}, {7});
    client->Read(kSum, 1);
  }
  EXPECT_TRUE(MetricsSay("djinn_time_to_first_result_seconds_sum 10\n"));
  EXPECT_TRUE(MetricsSay("djinn_time_to_first_result_seconds_count 1\n"));
  EXPECT_TRUE(MetricsSay("djinn_inter_result_seconds_sum 2\n"));
  EXPECT_TRUE(MetricsSay("djinn_inter_result_seconds_count 2\n"));
}

TEST_F(TokensFirstTest, TrainingYieldsToTokensOfItsClass) {
  phase_ = v1::PHASE_TRAINING;
  const auto trainer = OpenKnown("p", "t1");
  const auto talker = OpenKnown("d", "t1");
  EXPECT_EQ(WaitBehindPrompt(trainer.get(), talker.get()), absl::Seconds(1));
}

TEST_F(TokensFirstTest, TokensOfALowerClassWait) {
  const auto prompter = OpenKnown("p", "t1");
  const auto talker = OpenKnown("d", "t1", v1::PRIORITY_CLASS_BATCH);
  EXPECT_EQ(WaitBehindPrompt(prompter.get(), talker.get()),
            absl::Seconds(kPrompt - 2));
}

TEST_F(TokensFirstTest, ATenantsTokensTakeNoMoreThanItsShare) {
  const auto prompter = OpenKnown("p", "t1");
  const auto talker = OpenKnown("d", "t2");
  const size_t from = Order().size();
  Before(from, [&] {
    for (int i = 0; i < 3; ++i) RunShort(talker.get());
  });
  RunPrompt(prompter.get());
  prompter->Read(kSum, 1);
  talker->Read(kSum, 1);
  EXPECT_EQ(Order().substr(from), "afafafaaaaaaa");
}

TEST_F(TokensFirstTest, WaitingTokenPreemptsAPrompt) {
  const auto prompter = OpenKnown("p", "t1");
  const auto talker = OpenKnown("d", "t1");
  const auto other = OpenKnown("o", "t1");
  // The talker has had more, so it is behind the prompt in its tenant's queue.
  for (int i = 0; i < 3; ++i) talker->Run(1, {kSum}, {7});
  talker->Read(kSum, 1);
  // Runs the prompt once before, so that the phase of the session's runs no
  // longer changes.
  RunPrompt(prompter.get());
  prompter->Read(kSum, 1);
  for (int i = 0; i < 12; ++i) talker->Run(1, {kSum}, {7});
  talker->Read(kSum, 1);
  Account({prompter.get(), talker.get()});
  const size_t from = Order().size();
  Before(from, [&] {
    const uint32_t before = core_->Snapshot().queued_runs();
    RunPrompt(prompter.get());
    EXPECT_TRUE(WaitReceived(before + 1, prompter.get()));
    RunShort(talker.get());
  });
  other->Run(1, {kSum}, {7});
  other->Read(kSum, 1);
  prompter->Read(kSum, 1);
  talker->Read(kSum, 1);
  EXPECT_EQ(Order().substr(from), "fafaaaaaaaaa");
}

// Either run draws 8 of 16 MiB, and holds them up to its last node.
TEST_F(PreemptionTest, PreemptingRunWithoutRoomWaits) {
  const auto batch = OpenAs("batch", "t1", v1::PRIORITY_CLASS_BATCH);
  const auto quick = OpenAs("quick", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  const auto small = OpenAs("small", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  constexpr uint64_t kGenerator = 10, kDrawn = 11;
  constexpr int64_t kCount = 1 << 20;
  FakeGraph s;
  const uint32_t sum = s.Bound();
  const uint32_t generator = s.Generator();
  const uint32_t first = s.Draw(generator, kCount);
  const uint32_t second = s.Draw(generator, kCount);
  s.AddInPlace(sum, first, 1);
  s.AddInPlace(sum, second, 1);
  s.AddInPlace(sum, first, 1);
  for (TestClient* const client : {batch.get(), quick.get()}) {
    client->InstallSeed(kGenerator, 3);
    client->Define(3, s.get());
    client->Read(kOne, 1);
  }
  const auto run = [&](TestClient* client) {
    client->Run(3, {kSum, kGenerator, kDrawn, kDrawn + 1}, {}, {2, 3});
  };
  Before(2, [&] {
    const uint32_t before = core_->Snapshot().queued_runs();
    run(quick.get());
    EXPECT_TRUE(WaitReceived(before + 1, quick.get()));
  });
  // No run preempts the batch any more, because a run that preempted it lacked
  // memory.
  Before(3, [&] { RunShort(small.get()); });
  run(batch.get());
  EXPECT_EQ(batch->Read(kSum, 1), Floats{9 + kCount});
  EXPECT_EQ(quick->Read(kSum, 1), Floats{9 + kCount});
  EXPECT_EQ(small->Read(kSum, 1), Floats{7});
  EXPECT_EQ(Order().substr(0, 5), "ddaaa");
}

TEST_F(PreemptionTest, DeadlineThatWouldPassPreempts) {
  const auto slow = OpenAs("slow", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  const auto hurried =
      OpenAs("hurried", "t1", v1::PRIORITY_CLASS_INTERACTIVE, absl::Seconds(3));
  // The first run shows how long it takes.
  RunLong(slow.get(), 10);
  EXPECT_EQ(slow->Read(kSum, 1), Floats{10});
  const size_t from = Order().size();
  Before(from + 4, [&] { RunShort(hurried.get()); });
  slow->Run(2, {kSum, kOne});
  EXPECT_EQ(slow->Read(kSum, 1), Floats{20});
  EXPECT_EQ(hurried->Read(kSum, 1), Floats{7});
  EXPECT_EQ(Order().substr(from), "aaaaafaaaaa");
  EXPECT_TRUE(MetricsSay("reason=\"deadline\"} 1\n"));
}

TEST_F(PreemptionTest, ADeadlineThatWillBeMetWaits) {
  const auto slow = OpenAs("slow", "t1", v1::PRIORITY_CLASS_INTERACTIVE);
  const auto hurried = OpenAs("hurried", "t1", v1::PRIORITY_CLASS_INTERACTIVE,
                              absl::Seconds(30));
  RunLong(slow.get(), 10);
  EXPECT_EQ(slow->Read(kSum, 1), Floats{10});
  const size_t from = Order().size();
  Before(from + 4, [&] { RunShort(hurried.get()); });
  slow->Run(2, {kSum, kOne});
  EXPECT_EQ(slow->Read(kSum, 1), Floats{20});
  EXPECT_EQ(hurried->Read(kSum, 1), Floats{7});
  EXPECT_EQ(Order().substr(from), "aaaaaaaaaaf");
}

}  // namespace
}  // namespace djinn::worker
