// Tests what the coordinator learns of single runs when it asks.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/base/proto_duration.h"
#include "common/log/log.h"
#include "common/srg/canonical.h"
#include "gpu_worker/testing/batch_fixture.h"
#include "gpu_worker/testing/core_fixture.h"
#include "gpu_worker/testing/core_peers.h"

namespace djinn::worker {
namespace {

constexpr uint64_t kSum = 1;
constexpr uint64_t kOne = 2;

v1::RunsAnswer Ask(const std::string& session, v1::DesiredState desired,
                   WorkerCore* core) {
  v1::RunsQuestion* const question = desired.add_runs_questions();
  question->set_question_id(7);
  question->set_session_id(session);
  core->Apply(desired);
  v1::WorkerState state = core->Snapshot();
  EXPECT_EQ(state.runs_answers_size(), 1);
  EXPECT_EQ(state.runs_answers(0).question_id(), 7u);
  return state.runs_answers(0);
}

std::vector<v1::RunRecord> RunsOf(const v1::RunsAnswer& answer) {
  EXPECT_EQ(answer.leases_size(), 1);
  if (answer.leases_size() != 1) return {};
  return {answer.leases(0).runs().begin(), answer.leases(0).runs().end()};
}

absl::Duration Waited(const v1::RunRecord& run, v1::RunGate gate) {
  for (const v1::RunWait& wait : run.waits()) {
    if (wait.gate() == gate) return FromProtoDuration(wait.time());
  }
  return absl::ZeroDuration();
}

// Every node takes a second. Before() has the executor's thread call a function
// before a node. Graph N has N nodes.
class RunsTest : public WorkerCoreTest {
 protected:
  RunsTest() {
    device_.SetExecuteHook([this](const std::string&) {
      std::function<void()> happens;
      absl::Status result;
      {
        MutexLock lock(&mu_);
        const auto found = before_.find(nodes_++);
        if (found != before_.end()) {
          happens = std::move(found->second);
          before_.erase(found);
        }
        result = result_;
      }
      if (happens) happens();
      clock_.Advance(absl::Seconds(1));
      return result;
    });
  }
  ~RunsTest() override { core_->Shutdown(); }

  void Before(int node, std::function<void()> happens) {
    MutexLock lock(&mu_);
    before_[node] = std::move(happens);
  }
  void LetFail(absl::Status status) {
    MutexLock lock(&mu_);
    result_ = std::move(status);
  }

  std::unique_ptr<TestClient> OpenWith(const v1::LeaseClaims& lease) {
    Grant(lease, 1'000'000);
    std::unique_ptr<TestClient> client = Connect(HelloFor(lease.session_id()));
    client->Create(kSum, 4);
    client->InstallInline(kOne, std::string("\0\0\x80\x3f", 4));
    for (int nodes = 1; nodes <= 4; ++nodes) {
      client->Define(nodes, Adds(nodes));
    }
    return client;
  }
  std::unique_ptr<TestClient> OpenAs(const std::string& session,
                                     const std::string& tenant = "t1") {
    std::unique_ptr<TestClient> client = OpenWith(Lease(session, tenant));
    EXPECT_EQ(client->Read(kOne, 1), Floats{1});
    return client;
  }
  static srg::Graph Adds(int nodes) {
    FakeGraph s;
    const uint32_t sum = s.Bound();
    const uint32_t one = s.Bound();
    for (int i = 0; i < nodes; ++i) s.AddInPlace(sum, one, 1);
    return s.get();
  }
  static uint64_t Run(TestClient* client, int nodes) {
    return client->Run(nodes, {kSum, kOne});
  }
  // Sends a run, in the executor's thread. When this returns, the worker has
  // received it, and its session waits.
  void Receive(TestClient* client, int nodes) {
    const uint32_t before = core_->Snapshot().queued_runs();
    Run(client, nodes);
    EXPECT_TRUE(WaitReceived(before + 1, client));
  }

  v1::RunsAnswer Ask(const std::string& session) {
    return worker::Ask(session, Agreed(), core_.get());
  }
  std::vector<v1::RunRecord> RunsOf(const std::string& session) {
    return worker::RunsOf(Ask(session));
  }
  v1::RunRecord LastOf(const std::string& session) {
    const std::vector<v1::RunRecord> runs = RunsOf(session);
    EXPECT_FALSE(runs.empty());
    return runs.empty() ? v1::RunRecord() : runs.back();
  }
  bool IsHeldBy(const std::string& session, v1::RunGate gate) {
    return WaitUntil([&] {
      const v1::RunsAnswer answer = Ask(session);
      return answer.leases_size() == 1 && !answer.leases(0).runs().empty() &&
             answer.leases(0).runs().rbegin()->gate() == gate;
    });
  }

  Mutex mu_;
  std::map<int, std::function<void()>> before_ ABSL_GUARDED_BY(mu_);
  int nodes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status result_ ABSL_GUARDED_BY(mu_);
};

TEST_F(RunsTest, RunsAreReportedOnlyWhileTheCoordinatorAsks) {
  const auto client = OpenAs("s1");
  EXPECT_TRUE(client->WaitCompleted(Run(client.get(), 1)));
  EXPECT_EQ(core_->Snapshot().runs_answers_size(), 0);
  Ask("s1");
  // The worker answers as long as the coordinator asks.
  EXPECT_EQ(core_->Snapshot().runs_answers_size(), 1);
  core_->Apply(Agreed());
  EXPECT_EQ(core_->Snapshot().runs_answers_size(), 0);
}

TEST_F(RunsTest, UnknownSessionHasNoRuns) {
  OpenAs("s1");
  EXPECT_EQ(Ask("nobody").leases_size(), 0);
}

TEST_F(RunsTest, NothingIsToldOfOtherSessions) {
  const auto client = OpenAs("s1");
  const auto other = OpenAs("s2", "t2");
  EXPECT_TRUE(other->WaitCompleted(Run(other.get(), 1)));
  EXPECT_TRUE(RunsOf("s1").empty());
  EXPECT_EQ(Ask("s2").leases(0).lease_id(), "lease-s2");
}

TEST_F(RunsTest, ARunIsRemembered) {
  const auto client = OpenAs("s1");
  client->set_lane(5);
  const uint64_t number = Run(client.get(), 3);
  EXPECT_EQ(client->Read(kSum, 1), Floats{3});
  clock_.Advance(absl::Seconds(10));
  const v1::RunRecord run = LastOf("s1");
  EXPECT_EQ(run.number(), number);
  EXPECT_EQ(run.lane(), 5u);
  EXPECT_EQ(run.state(), v1::RunRecord::COMPLETED);
  EXPECT_EQ(run.fingerprint(),
            absl::BytesToHexString(srg::Fingerprint(Adds(3))));
  EXPECT_EQ(run.age().seconds(), 13);
  EXPECT_EQ(run.waited().seconds(), 0);
  EXPECT_EQ(run.served().seconds(), 3);
  EXPECT_EQ(run.device_time().seconds(), 3);
  EXPECT_EQ(run.yield_count(), 0u);
  EXPECT_FALSE(run.has_deadline());
}

TEST_F(RunsTest, TheLastOnesAreRemembered) {
  const auto client = OpenAs("s1");
  uint64_t last = 0;
  for (int i = 0; i < 40; ++i) last = Run(client.get(), 1);
  EXPECT_TRUE(client->WaitCompleted(last));
  const std::vector<v1::RunRecord> runs = RunsOf("s1");
  ASSERT_EQ(runs.size(), 16u);
  EXPECT_EQ(runs.front().number(), last - 15);
  EXPECT_EQ(runs.back().number(), last);
}

TEST_F(RunsTest, ItsTurnIsToldApartByWhoIsServed) {
  const auto first = OpenAs("first", "t1");
  const auto own = OpenAs("own", "t1");
  const auto other = OpenAs("other", "t2");
  std::vector<v1::RunRecord> waiting;
  Before(0, [&] {
    Receive(own.get(), 1);
    Receive(other.get(), 2);
  });
  Before(1,
         [&] { waiting = {LastOf("own"), LastOf("other"), LastOf("first")}; });
  Run(first.get(), 3);
  EXPECT_EQ(first->Read(kSum, 1), Floats{3});
  EXPECT_EQ(own->Read(kSum, 1), Floats{1});
  EXPECT_EQ(other->Read(kSum, 1), Floats{2});
  ASSERT_EQ(waiting.size(), 3u);
  EXPECT_EQ(waiting[0].state(), v1::RunRecord::WAITING);
  EXPECT_EQ(waiting[0].gate(), v1::RUN_GATE_TENANT);
  EXPECT_EQ(waiting[0].gate_time().seconds(), 1);
  EXPECT_EQ(waiting[0].messages_ahead(), 0u);
  EXPECT_EQ(waiting[1].gate(), v1::RUN_GATE_OTHER_TENANTS);
  EXPECT_EQ(waiting[2].state(), v1::RunRecord::IN_SERVICE);
  EXPECT_EQ(waiting[2].served().seconds(), 1);
  // The other tenant had nothing yet, so its turn was next.
  const v1::RunRecord own_run = LastOf("own");
  EXPECT_EQ(Waited(own_run, v1::RUN_GATE_TENANT), absl::Seconds(3));
  EXPECT_EQ(Waited(own_run, v1::RUN_GATE_OTHER_TENANTS), absl::Seconds(2));
  EXPECT_EQ(FromProtoDuration(own_run.waited()), absl::Seconds(5));
  const v1::RunRecord other_run = LastOf("other");
  EXPECT_EQ(Waited(other_run, v1::RUN_GATE_OTHER_TENANTS), absl::Seconds(3));
  EXPECT_EQ(FromProtoDuration(other_run.waited()), absl::Seconds(3));
}

TEST_F(RunsTest, RunWaitsForEarlierMessages) {
  const auto client = OpenAs("s1");
  std::vector<v1::RunRecord> runs;
  Before(1, [&] { runs = RunsOf("s1"); });
  client->Hold();
  for (int nodes = 3; nodes > 0; --nodes) Run(client.get(), nodes);
  client->Release();
  EXPECT_EQ(client->Read(kSum, 1), Floats{6});
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[1].state(), v1::RunRecord::WAITING);
  EXPECT_EQ(runs[1].gate(), v1::RUN_GATE_SESSION);
  EXPECT_EQ(runs[1].messages_ahead(), 1u);
  EXPECT_EQ(runs[2].messages_ahead(), 2u);
  runs = RunsOf("s1");
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(Waited(runs[0], v1::RUN_GATE_SESSION), absl::ZeroDuration());
  EXPECT_EQ(Waited(runs[1], v1::RUN_GATE_SESSION), absl::Seconds(3));
  EXPECT_EQ(Waited(runs[2], v1::RUN_GATE_SESSION), absl::Seconds(5));
}

TEST_F(RunsTest, AnUploadBeforeItIsWaitedFor) {
  const auto client = OpenAs("s1");
  const std::string bytes = FloatBytes(Floats(5000, 3));
  client->InstallTransfer(9, 1, bytes);
  EXPECT_TRUE(client->WaitDecision(1).send());
  Run(client.get(), 1);
  EXPECT_TRUE(IsHeldBy("s1", v1::RUN_GATE_BYTES));
  clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(LastOf("s1").messages_ahead(), 1u);
  EXPECT_EQ(LastOf("s1").gate_time().seconds(), 4);
  EXPECT_EQ(Ask("s1").leases(0).wait().what(), v1::MessageWait::BYTES);
  client->SendBytes(1, bytes);
  EXPECT_EQ(client->Read(kSum, 1), Floats{1});
  const v1::RunRecord run = LastOf("s1");
  EXPECT_EQ(Waited(run, v1::RUN_GATE_BYTES), absl::Seconds(4));
  EXPECT_EQ(run.waited().seconds(), 4);
}

TEST_F(RunsTest, RunWaitsForAnEvictedGraph) {
  WorkerCoreOptions options;
  options.graph_cache.max_plans = 1;
  Start(options);
  const auto client = OpenWith(Lease("s1", "t1"));
  const uint64_t number = Run(client.get(), 1);
  EXPECT_TRUE(IsHeldBy("s1", v1::RUN_GATE_GRAPH));
  clock_.Advance(absl::Seconds(2));
  client->Supply(1, Adds(1));
  EXPECT_EQ(client->Read(kSum, 1), Floats{1});
  const v1::RunRecord run = LastOf("s1");
  EXPECT_EQ(run.number(), number);
  EXPECT_EQ(Waited(run, v1::RUN_GATE_GRAPH), absl::Seconds(2));
  EXPECT_EQ(run.served().seconds(), 1);
}

TEST_F(RunsTest, CreditIsWaitedFor) {
  v1::LeaseClaims poor = Lease("s1", "t1");
  poor.mutable_credits()->mutable_device_time()->set_seconds(1);
  const auto client = OpenWith(poor);
  EXPECT_TRUE(client->WaitCompleted(Run(client.get(), 1)));
  Run(client.get(), 1);
  EXPECT_TRUE(IsHeldBy("s1", v1::RUN_GATE_CREDIT));
  EXPECT_TRUE(Ask("s1").leases(0).out_of_credit());
  clock_.Advance(absl::Seconds(5));
  poor.mutable_credits()->mutable_device_time()->set_seconds(100);
  Grant(poor, 1'000'000);
  EXPECT_EQ(client->Read(kSum, 1), Floats{2});
  EXPECT_EQ(Waited(LastOf("s1"), v1::RUN_GATE_CREDIT), absl::Seconds(5));
}

TEST_F(RunsTest, PreemptorIsNamedDuringAndAfterThePreemption) {
  v1::LeaseClaims batch = Lease("batch-session", "t1");
  batch.mutable_urgency()->set_priority_class(v1::PRIORITY_CLASS_BATCH);
  const auto slow = OpenWith(batch);
  const auto quick = OpenAs("quick-session", "t2");
  v1::RunRecord then;
  Before(1, [&] { Receive(quick.get(), 2); });
  // This is the second node of the quick run.
  Before(3, [&] { then = LastOf("batch-session"); });
  Run(slow.get(), 4);
  EXPECT_EQ(slow->Read(kSum, 1), Floats{4});
  EXPECT_EQ(then.state(), v1::RunRecord::IN_SERVICE);
  EXPECT_EQ(then.preempted_by().tenant(), "t2");
  EXPECT_EQ(then.preempted_by().session_id(), log::ShortId("quick-session"));
  EXPECT_EQ(then.preempted_by().reason(), "higher_priority");
  EXPECT_EQ(then.preempted_by().time().seconds(), 1);
  EXPECT_EQ(then.yield_count(), 0u);
  const v1::RunRecord run = LastOf("batch-session");
  EXPECT_FALSE(run.has_preempted_by());
  EXPECT_EQ(run.yield_count(), 1u);
  EXPECT_EQ(run.yielded_for().seconds(), 2);
  ASSERT_EQ(run.preemptions_size(), 1);
  EXPECT_EQ(run.preemptions(0).tenant(), "t2");
  EXPECT_EQ(run.preemptions(0).reason(), "higher_priority");
  EXPECT_EQ(run.served().seconds(), 6);
  EXPECT_EQ(run.device_time().seconds(), 4);
  // Waiting for the end of a node counts as waiting for the tenant that is
  // served.
  const v1::RunRecord quick_run = LastOf("quick-session");
  EXPECT_EQ(Waited(quick_run, v1::RUN_GATE_OTHER_TENANTS), absl::Seconds(1));
  EXPECT_EQ(quick_run.yield_count(), 0u);
}

TEST_F(RunsTest, ARunThatComesTooLateWasRefused) {
  const auto first = OpenAs("first", "t1");
  v1::LeaseClaims timed = Lease("timed", "t2");
  timed.mutable_urgency()->mutable_run_deadline()->set_seconds(2);
  const auto second = OpenWith(timed);
  Before(0, [&] { Receive(second.get(), 1); });
  Run(first.get(), 3);
  EXPECT_EQ(first->Read(kSum, 1), Floats{3});
  EXPECT_EQ(second->ReadError(kSum).reason(), "RUN_DEADLINE_EXCEEDED");
  const v1::RunRecord run = LastOf("timed");
  EXPECT_EQ(run.state(), v1::RunRecord::REFUSED);
  EXPECT_EQ(run.failure().reason(), "RUN_DEADLINE_EXCEEDED");
  EXPECT_EQ(run.deadline().seconds(), 2);
  EXPECT_EQ(run.waited().seconds(), 3);
  EXPECT_EQ(run.device_time().seconds(), 0);
}

TEST_F(RunsTest, ARunThatWouldBeLateWasRefused) {
  v1::LeaseClaims timed = Lease("timed", "t1");
  timed.mutable_urgency()->mutable_run_deadline()->set_seconds(2);
  const auto client = OpenWith(timed);
  // The second run shows how long it takes.
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(client->WaitCompleted(Run(client.get(), 3)));
  }
  EXPECT_TRUE(client->WaitCompleted(Run(client.get(), 3)));
  const std::vector<v1::RunRecord> runs = RunsOf("timed");
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[1].state(), v1::RunRecord::COMPLETED);
  EXPECT_EQ(runs[2].state(), v1::RunRecord::REFUSED);
  EXPECT_EQ(runs[2].failure().reason(), "RUN_WOULD_BE_LATE");
  EXPECT_EQ(runs[2].served().seconds(), 0);
}

TEST_F(RunsTest, AnOperatorThatFailedIsNamed) {
  const auto client = OpenAs("s1");
  LetFail(absl::InvalidArgumentError("no such index"));
  Run(client.get(), 1);
  EXPECT_EQ(client->ReadError(kSum).reason(), "OPERATOR_FAILED");
  LetFail(absl::OkStatus());
  const v1::RunRecord run = LastOf("s1");
  EXPECT_EQ(run.state(), v1::RunRecord::FAILED);
  EXPECT_EQ(run.failure().reason(), "OPERATOR_FAILED");
  EXPECT_EQ(run.failure().message(), "no such index");
  EXPECT_FALSE(run.failure().operator_name().empty());
  EXPECT_TRUE(run.failure().has_node());
}

TEST_F(RunsTest, ARunOfARefusedGraphFailed) {
  const auto client = OpenAs("s1");
  FakeGraph s;
  s.Unary("fake::refused", s.Bound(), 1);
  client->Define(9, s.get(), {4});
  client->Run(9, {kOne, 10});
  EXPECT_FALSE(client->ReadError(10).reason().empty());
  const v1::RunRecord run = LastOf("s1");
  EXPECT_EQ(run.state(), v1::RunRecord::FAILED);
  EXPECT_FALSE(run.failure().reason().empty());
  EXPECT_TRUE(run.fingerprint().empty());
}

TEST_F(RunsTest, CancelledRunsAreRecorded) {
  const auto client = OpenAs("s1");
  Before(1, [&] {
    client->SendCancel();
    EXPECT_TRUE(
        WaitUntil([&] { return core_->Snapshot().queued_runs() == 1; }));
  });
  client->Hold();
  for (int i = 0; i < 3; ++i) Run(client.get(), 4);
  client->Release();
  client->WaitFor(
      [](const v1::ControlResponse& r) { return r.has_cancelled(); });
  const std::vector<v1::RunRecord> runs = RunsOf("s1");
  ASSERT_EQ(runs.size(), 3u);
  for (const v1::RunRecord& run : runs) {
    EXPECT_EQ(run.state(), v1::RunRecord::CANCELLED);
  }
  EXPECT_TRUE(runs[0].has_served());
  EXPECT_FALSE(runs[1].has_served());
  EXPECT_EQ(runs[1].waited().seconds(), 1);
}

TEST_F(RunsTest, ASessionThatEndedIsForgotten) {
  const auto client = OpenAs("s1");
  EXPECT_TRUE(client->WaitCompleted(Run(client.get(), 1)));
  v1::DesiredState desired = Agreed();
  desired.add_drop_session_ids("s1");
  core_->Apply(desired);
  EXPECT_EQ(Ask("s1").leases_size(), 0);
}

class PulledRunsTest : public TwoCoresTest {};

TEST_F(PulledRunsTest, AValueOfAnotherWorkerIsWaitedFor) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  FakeGraph fill;
  fill.FillInPlace(fill.Bound(), 2);
  there->Define(1, fill.get());
  v1::Pull pull;
  pull.set_worker_id("w0");
  pull.set_worker_incarnation(core_->incarnation());
  pull.set_ticket(Ticket('a'));
  pull.set_size_bytes(8);
  there->InstallPull(5, pull);
  there->Run(1, {5}, {4});
  const auto last = [&] {
    const v1::RunsAnswer answer = worker::Ask("s1", Agreed(), other_.get());
    return answer.leases_size() != 1 || answer.leases(0).runs().empty()
               ? v1::RunRecord()
               : *answer.leases(0).runs().rbegin();
  };
  EXPECT_TRUE(WaitUntil([&] { return last().gate() == v1::RUN_GATE_VALUE; }));
  clock_.Advance(absl::Seconds(3));
  here->InstallInline(1, FloatBytes({1, 2}));
  here->Offer(1, Ticket('a'));
  EXPECT_EQ(there->Read(5, 2), (Floats{4, 4}));
  EXPECT_EQ(Waited(last(), v1::RUN_GATE_VALUE), absl::Seconds(3));
}

class SharedRunsTest : public BatchTest {
 protected:
  v1::RunRecord LastOf(const std::string& session) {
    const std::vector<v1::RunRecord> runs =
        worker::RunsOf(worker::Ask(session, Agreed(), core_.get()));
    return runs.empty() ? v1::RunRecord() : runs.back();
  }
};

TEST_F(SharedRunsTest, BatchCompanionsAreNamed) {
  Share({"t1", "t2"});
  Batch({"t1", "t2"});
  UploadWeight(Add("first", "t1", 0));
  UploadWeight(Add("second", "t2", 1));
  Plug();
  for (const auto& client : clients_) Run(client.get());
  ReleaseWith(3);
  for (const auto& client : clients_) Result(client.get());
  clients_[0]->Meter();
  clients_[1]->Meter();
  const v1::RunRecord first = LastOf("first");
  EXPECT_EQ(first.state(), v1::RunRecord::COMPLETED);
  EXPECT_TRUE(first.fast());
  EXPECT_EQ(first.shared_products(), 1u);
  ASSERT_EQ(first.companions_size(), 1);
  EXPECT_EQ(first.companions(0).tenant(), "t2");
  EXPECT_EQ(first.companions(0).session_id(), log::ShortId("second"));
  // Half of the product's four seconds, and one second.
  EXPECT_EQ(first.device_time().seconds(), 3);
  const v1::RunRecord second = LastOf("second");
  EXPECT_EQ(second.companions(0).session_id(), log::ShortId("first"));
  // Both waited for the plug's run.
  EXPECT_EQ(Waited(first, v1::RUN_GATE_OTHER_TENANTS), absl::Seconds(1));
  EXPECT_EQ(Waited(second, v1::RUN_GATE_OTHER_TENANTS), absl::Seconds(1));
}

TEST_F(SharedRunsTest, BatchIsWaitedFor) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  const uint64_t first = RunAlone(a);
  EXPECT_EQ(LastOf("a").gate(), v1::RUN_GATE_BATCH);
  clock_.Advance(absl::Milliseconds(100));
  const uint64_t second = RunNext(b);
  a->WaitRead(first);
  b->WaitRead(second);
  EXPECT_EQ(Waited(LastOf("a"), v1::RUN_GATE_BATCH), absl::Milliseconds(100));
  EXPECT_EQ(Waited(LastOf("b"), v1::RUN_GATE_BATCH), absl::ZeroDuration());
}

}  // namespace
}  // namespace djinn::worker
