// Tests that an executor which its tenant has taken over keeps neither threads
// nor leases from others.
#include <unistd.h>

#include <string>
#include <thread>

#include "common/base/patience.h"
#include "common/base/proto_duration.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/process_threads.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(ProcessThreadsTest, NameOfAProcessMisleadsNobody) {
  EXPECT_EQ(ParseProcessThreads("77 (x) S 1 2) R 1 77 77 0 -1 4194304 9 9 9 9 "
                                "120 30 5 5 20 0 17 0 1 2"),
            17u);
  EXPECT_FALSE(ParseProcessThreads("77 (x").has_value());
  EXPECT_FALSE(ParseProcessThreads("77 (x) R 1").has_value());
}

TEST(ProcessThreadsTest, ThreadsOfThisProcessAreCounted) {
  const uint64_t before = ReadProcessThreads(getpid()).value();
  Mutex mu;
  mu.Lock();
  std::thread more([&mu] { MutexLock lock(&mu); });
  EXPECT_EQ(ReadProcessThreads(getpid()).value(), before + 1);
  mu.Unlock();
  more.join();
}

// Tenant "evil" has executor 0 and lease "e1"; tenant "good" has executor 1 and
// lease "g1".
class LimitsTest : public SupervisorTest {
 protected:
  LimitsTest() : SupervisorTest(OnTwoProcessors()) {
    Step();
    Give("evil", "e1");
    Give("good", "g1");
    executor(0).SayReady();
    executor(1).SayReady();
    executor(0).Report(Holding("evil", "e1", 0, 1));
    executor(1).Report(Holding("good", "g1", 0, 1));
    Step();
    launcher_.threads[1] = launcher_.threads[2] = 60;
  }
  static SupervisorOptions OnTwoProcessors() {
    SupervisorOptions options = Options();
    options.processors = 2;
    return options;
  }

  // Lists a lease that is valid for a minute.
  void Give(const std::string& tenant, const std::string& id) {
    v1::LeaseClaims claims = UncheckedClaims(LeaseOf(tenant, id));
    *claims.mutable_valid_for() = ToProtoDuration(absl::Seconds(50));
    *claims.mutable_grace() = ToProtoDuration(absl::Seconds(10));
    v1::DesiredState desired;
    desired.set_revision(++revision_);
    desired.add_leases()->set_claims(claims.SerializeAsString());
    supervisor_.Apply(desired);
    Step();
  }
  // Lets seconds pass in which executors say that they live.
  void Pass(int seconds) {
    v1::FromExecutor alive;
    alive.mutable_health();
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(absl::Seconds(1));
      for (const auto& executor : launcher_.executors) executor->Send(alive);
      Step();
    }
  }
  void Drop(const v1::DesiredState& orders) {
    v1::DesiredState desired = orders;
    desired.set_revision(++revision_);
    supervisor_.Apply(desired);
    Step();
  }
  // Has the first executor report that it ended the lease.
  void ReportEnd(const std::string& tenant, const std::string& id) {
    v1::WorkerState report;
    report.set_applied_revision(revision_);
    *report.add_ended_leases()->mutable_lease() = LeaseOf(tenant, id);
    report.add_released_lease_ids(id);
    executor(0).Report(report);
    Step();
  }
  std::string Metrics() {
    Exposition metrics;
    supervisor_.Collect(&metrics);
    return metrics.Text();
  }
};

TEST_F(LimitsTest, AnExecutorOfTooManyThreadsEndsAlone) {
  // One for each lease, too.
  launcher_.threads[1] = 512 + 8 * 2 + 1;
  Pass(1);
  EXPECT_THAT(Ended(), IsEmpty());
  ++launcher_.threads[1];
  Pass(1);
  EXPECT_THAT(Ended(), ElementsAre(std::pair("e1", "THREAD_LIMIT")));
  EXPECT_THAT(launcher_.killed, ElementsAre(1));
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_executor_ends_total{reason="
                                   "\"THREAD_LIMIT\"} 1"));
}

TEST_F(LimitsTest, TheLeaseThatItKeepsHasTheReason) {
  // It goes on serving another one, which recovers.
  Give("evil", "e2");
  launcher_.words[0].NoteServed({"e2"});
  v1::DesiredState orders;
  orders.add_drop_lease_ids("e1");
  Drop(orders);
  Pass(13);
  EXPECT_THAT(Ended(), UnorderedElementsAre(std::pair("e1", "LEASE_KEPT"),
                                            std::pair("e2", "EXECUTOR_LOST")));
}

TEST_F(LimitsTest, AnExecutorThatKeepsADroppedLeaseEndsAlone) {
  v1::DesiredState orders;
  orders.add_drop_lease_ids("e1");
  Drop(orders);
  Pass(10);
  EXPECT_THAT(Ended(), IsEmpty());
  Pass(3);
  EXPECT_THAT(Ended(), ElementsAre(std::pair("e1", "LEASE_KEPT")));
  EXPECT_THAT(launcher_.killed, ElementsAre(1));
  EXPECT_THAT(
      Metrics(),
      HasSubstr("djinn_worker_executor_ends_total{reason=\"LEASE_KEPT\"} 1"));
}

TEST_F(LimitsTest, AnExecutorThatKeepsALeaseOfADroppedSessionEndsAlone) {
  v1::DesiredState orders;
  orders.add_drop_session_ids("session-of-e1");
  Drop(orders);
  Pass(13);
  EXPECT_THAT(Ended(), ElementsAre(std::pair("e1", "LEASE_KEPT")));
}

TEST_F(LimitsTest, ALeaseThatItEndsMayWaitToBeSettled) {
  v1::DesiredState orders;
  orders.add_drop_lease_ids("e1");
  Drop(orders);
  ReportEnd("evil", "e1");
  Pass(60);
  EXPECT_THAT(launcher_.killed, IsEmpty());
  // It must not come back.
  executor(0).Report(Holding("evil", "e1", 0, revision_));
  Pass(2);
  EXPECT_THAT(launcher_.killed, ElementsAre(1));
}

TEST_F(LimitsTest, AnExecutorThatKeepsAnExpiredLeaseIsEnded) {
  // Every order renews what the stream has listed.
  for (int i = 0; i < 4; ++i) {
    Pass(30);
    Drop({});
  }
  EXPECT_THAT(launcher_.killed, IsEmpty());
  // The coordinator is away.
  Pass(60);
  EXPECT_THAT(launcher_.killed, IsEmpty());
  ReportEnd("evil", "e1");
  Pass(13);
  EXPECT_THAT(launcher_.killed, ElementsAre(2));
}

TEST_F(LimitsTest, ALeaseThatTheNextStreamDoesNotListExpires) {
  revision_ = 0;
  Give("good", "g1");
  executor(1).Report(Holding("good", "g1", 0, 1));
  for (int i = 0; i < 3; ++i) {
    Pass(20);
    Drop({});
  }
  EXPECT_THAT(launcher_.killed, IsEmpty());
  Pass(13);
  EXPECT_THAT(launcher_.killed, ElementsAre(1));
}

}  // namespace
}  // namespace djinn::worker
