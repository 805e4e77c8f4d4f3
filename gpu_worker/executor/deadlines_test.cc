// Tests runs with a deadline: which are refused because they would be late,
// when, and what is counted.
#include <memory>
#include <string>

#include "common/base/proto_duration.h"
#include "gpu_worker/testing/node_hook.h"

namespace djinn::worker {
namespace {

// Graph N has N nodes.
class DeadlinesTest : public NodeHookTest {
 protected:
  size_t Nodes() { return Order().size(); }
  std::unique_ptr<TestClient> OpenAs(const std::string& session,
                                     const std::string& tenant,
                                     absl::Duration run_deadline) {
    std::unique_ptr<TestClient> client =
        OpenToAdd(LeaseWithDeadline(session, tenant, run_deadline));
    for (int nodes = 1; nodes <= 3; ++nodes) client->Define(nodes, Long(nodes));
    EXPECT_EQ(client->Read(kOne, 1), Floats{1});
    return client;
  }
  static void Run(TestClient* client, int nodes) {
    client->Run(nodes, {kSum, kOne});
  }
  // Sends a run, in the executor's thread. The worker has received it when this
  // returns.
  void Receive(TestClient* client, int nodes) {
    const uint32_t before = core_->Snapshot().queued_runs();
    Run(client, nodes);
    EXPECT_TRUE(WaitReceived(before + 1, client));
  }
  // Executes two runs, after which the worker knows how long one takes.
  void Learn(TestClient* client, int nodes) {
    for (int i = 0; i < 2; ++i) {
      Run(client, nodes);
      client->Read(kSum, 1);
    }
    // Answers are sent before the turn is charged and ends; other sessions'
    // turns depend on the charge. Once the executor's time stands still, it
    // waits, so the turn has ended.
    EXPECT_TRUE(WaitUntil([&] {
      const auto time = [this] {
        return FromProtoDuration(core_->Snapshot().executed().executor_time());
      };
      const absl::Duration before = time();
      clock_.Advance(absl::Milliseconds(1));
      return time() == before;
    }));
  }
  bool Counted(const std::string& tenant, const std::string& result,
               int count) {
    return Metrics().find("djinn_run_deadlines_total{tenant=\"" + tenant +
                          "\",priority_class=\"interactive\",result=\"" +
                          result + "\"} " + std::to_string(count) + "\n") !=
           std::string::npos;
  }
};

TEST_F(DeadlinesTest, ARunThatCannotBeDoneInTimeIsNotBegun) {
  const auto client = OpenAs("s1", "t1", absl::Seconds(3.5));
  const auto other = OpenAs("s2", "t2", {});
  Learn(client.get(), 3);
  EXPECT_EQ(Nodes(), 6u);
  EXPECT_TRUE(Counted("t1", "attained", 2));
  // Its turn comes after a second, so it would complete after four.
  Before(6, [&] { Receive(client.get(), 3); });
  Run(other.get(), 1);
  EXPECT_EQ(other->Read(kSum, 1), Floats{1});
  const v1::ErrorDetail error = client->ReadError(kSum);
  EXPECT_EQ(error.code(),
            static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(error.reason(), "RUN_WOULD_BE_LATE");
  EXPECT_EQ(error.message(),
            "the run was not begun: its deadline is in 2.5s, and it would be "
            "done in 3s at the earliest, with 0 before it");
  // With half a second less ahead of it, it would complete in time.
  EXPECT_EQ(FromProtoDuration(error.retry_after()), absl::Milliseconds(500));
  EXPECT_EQ(Nodes(), 7u);
  EXPECT_TRUE(Counted("t1", "refused", 1));
  const std::string text = Metrics();
  for (const char* line :
       {"djinn_requests_total{tenant=\"t1\",phase=\"unknown\",code=\"OK\"} 2\n",
        "djinn_requests_total{tenant=\"t1\",phase=\"unknown\",code="
        "\"DEADLINE_EXCEEDED\"} 1\n",
        "djinn_request_duration_seconds_count 4\n",
        // Two runs take three seconds each, one takes one, and the refused run
        // waited one.
        "djinn_request_duration_seconds_sum 8\n",
        "djinn_rejections_total{tenant=\"t1\",reason=\"RUN_WOULD_BE_LATE\"} "
        "1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST_F(DeadlinesTest, ARunBehindTooMuchIsRefusedAtOnce) {
  const auto client = OpenAs("s1", "t1", absl::Seconds(3.5));
  const auto other = OpenAs("s2", "t2", absl::Hours(1));
  const auto plug = OpenAs("s3", "t3", {});
  // In this order, the other's tenant has not had more than the client's when
  // both wait.
  Learn(other.get(), 3);
  Learn(client.get(), 1);
  const size_t before = Nodes();
  Before(before, [&] {
    Receive(other.get(), 3);
    Receive(client.get(), 1);
  });
  // The run would take three seconds of the other's, and its own. It is refused
  // before the other's begin.
  bool told = false;
  Before(before + 1, [&] { told = Counted("t1", "refused", 1); });
  Run(plug.get(), 1);
  EXPECT_EQ(plug->Read(kSum, 1), Floats{1});
  const v1::ErrorDetail error = client->ReadError(kSum);
  EXPECT_EQ(error.reason(), "RUN_WOULD_BE_LATE");
  EXPECT_EQ(error.message(),
            "the run was not begun: its deadline is in 2.5s, and it would be "
            "done in 4s at the earliest, with 3s before it");
  EXPECT_EQ(other->Read(kSum, 1), Floats{9});
  EXPECT_TRUE(told);
}

TEST_F(DeadlinesTest, ARunThatIsDoneInTimeIsNotRefused) {
  const auto client = OpenAs("s1", "t1", absl::Seconds(4));
  const auto other = OpenAs("s2", "t2", {});
  Learn(client.get(), 3);
  Before(6, [&] { Receive(client.get(), 3); });
  Run(other.get(), 1);
  EXPECT_EQ(other->Read(kSum, 1), Floats{1});
  EXPECT_EQ(client->Read(kSum, 1), Floats{9});
  EXPECT_TRUE(Counted("t1", "attained", 3));
}

TEST_F(DeadlinesTest, HowFarOffAnExpectedStartWasIsCounted) {
  const auto says = [this](const std::string& line) {
    return WaitUntil([&] {
      return Metrics().find("djinn_start_prediction_error_seconds_" + line +
                            "\n") != std::string::npos;
    });
  };
  const auto client = OpenAs("s1", "t1", absl::Seconds(100));
  const auto known = OpenAs("s2", "t2", absl::Seconds(100));
  const auto unknown = OpenAs("s3", "t3", {});
  Learn(client.get(), 1);
  Learn(known.get(), 3);
  // Nothing was ahead of any of these, because each was alone.
  EXPECT_TRUE(says("sum 0"));
  // The run arrives with the first node of a run of three seconds, all of which
  // are known.
  Before(Nodes(), [&] { Receive(client.get(), 1); });
  Run(known.get(), 3);
  known->Read(kSum, 1);
  client->Read(kSum, 1);
  EXPECT_TRUE(says("sum 0"));
  // The duration of this run is unknown; it takes two seconds more.
  Before(Nodes(), [&] {
    clock_.Advance(absl::Seconds(1));
    Receive(client.get(), 1);
  });
  Run(unknown.get(), 2);
  unknown->Read(kSum, 1);
  client->Read(kSum, 1);
  EXPECT_TRUE(says("sum 2"));
}

TEST_F(DeadlinesTest, RunOfUnknownDurationIsNotRefused) {
  const auto client = OpenAs("s1", "t1", absl::Seconds(0.5));
  for (int i = 1; i <= 2; ++i) {
    Run(client.get(), 1);
    EXPECT_EQ(client->Read(kSum, 1), Floats{static_cast<float>(i)});
    EXPECT_TRUE(Counted("t1", "missed", i));
  }
  // Now the duration is known.
  Run(client.get(), 1);
  const v1::ErrorDetail error = client->ReadError(kSum);
  EXPECT_EQ(error.reason(), "RUN_WOULD_BE_LATE");
  // A later try would not complete any sooner.
  EXPECT_FALSE(error.has_retry_after());
  // The duration of another graph is unknown. That of this graph becomes
  // unknown after a while.
  client->Create(3, 4);
  client->Run(2, {3, kOne});
  EXPECT_EQ(client->Read(3, 1), Floats{2});
  clock_.Advance(scheduler::RunTimes::kTrusted);
  client->Create(4, 4);
  client->Run(1, {4, kOne});
  EXPECT_EQ(client->Read(4, 1), Floats{1});
}

TEST_F(DeadlinesTest, OldestPendingAgeIsReportedByTenant) {
  const auto client = OpenAs("s1", "t1", {});
  const auto other = OpenAs("s2", "t2", {});
  const auto idle = OpenAs("s3", "t3", {});
  std::string text;
  Before(0, [&] { Receive(client.get(), 1); });
  Before(2, [&] { text = Metrics(); });
  Run(other.get(), 3);
  EXPECT_EQ(other->Read(kSum, 1), Floats{3});
  EXPECT_EQ(client->Read(kSum, 1), Floats{1});
  EXPECT_NE(text.find("djinn_oldest_pending_age_seconds{tenant=\"t1\"} 2\n"),
            std::string::npos);
  EXPECT_NE(text.find("djinn_oldest_pending_age_seconds{tenant=\"t3\"} 0\n"),
            std::string::npos);
}

TEST_F(DeadlinesTest, ARunWhoseTurnComesTooLateHasMissedIt) {
  const auto client = OpenAs("s1", "t1", absl::Seconds(0.5));
  const auto other = OpenAs("s2", "t2", {});
  Before(0, [&] { Receive(client.get(), 1); });
  Run(other.get(), 1);
  EXPECT_EQ(other->Read(kSum, 1), Floats{1});
  EXPECT_EQ(client->ReadError(kSum).reason(), "RUN_DEADLINE_EXCEEDED");
  EXPECT_TRUE(Counted("t1", "missed", 1));
}

}  // namespace
}  // namespace djinn::worker
