// Tests the supervisor on a fake clock and with executors that are sockets in
// this process.
#include "gpu_worker/supervisor/supervisor.h"

#include <sys/socket.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/lease/lease_verifier.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/metrics/joined_metrics.h"
#include "gpu_worker/supervisor/supervision_link.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Returns the report of an executor whose leases have all ended.
v1::WorkerState HoldingNothing(uint64_t applied) {
  v1::WorkerState nothing;
  nothing.set_complete(true);
  nothing.set_applied_revision(applied);
  return nothing;
}

TEST_F(SupervisorTest, OneExecutorIsReadyBeforeAnyTenant) {
  EXPECT_FALSE(supervisor_.Ready().ok());
  Step();
  ASSERT_THAT(launcher_.executors, SizeIs(1));
  const std::optional<v1::ToExecutor> first = executor(0).Next();
  ASSERT_TRUE(first.has_value() && first->has_setup());
  EXPECT_EQ(first->setup().incarnation(), 7);
  EXPECT_EQ(first->setup().memory_bytes(), kMemory / 2);
  executor(0).SayReady();
  Step();
  EXPECT_TRUE(supervisor_.Ready().ok());
  EXPECT_EQ(supervisor_.Snapshot().device(), "fake");
  EXPECT_THAT(Endpoints(), IsEmpty());
}

// Has an executor say that it took 50 bytes of a GPU of which `free` were free,
// where each of two may take 100 besides. Returns whether it serves.
class GpuMemoryTest : public SupervisorTest {
 protected:
  absl::Status Ready(uint64_t free) {
    SupervisorOptions options = Options();
    options.setup.set_process_memory(100);
    FakeLauncher launcher;
    Arbiter arbiter(Clock::Real());
    Supervisor supervisor(std::move(options), &launcher, &arbiter, &clock_,
                          [] {});
    supervisor.Step(absl::ZeroDuration());
    v1::FromExecutor message;
    message.mutable_ready()->set_device("cuda:0");
    message.mutable_ready()->mutable_gpu_memory()->set_free_bytes(free);
    message.mutable_ready()->mutable_gpu_memory()->set_context_bytes(50);
    launcher.executors[0]->Send(message);
    supervisor.Step(absl::ZeroDuration());
    Exposition out;
    supervisor.Collect(&out);
    metrics_ = out.Text();
    return supervisor.Ready();
  }

  std::string metrics_;
};

TEST_F(GpuMemoryTest, EveryExecutorsPartMustFit) {
  EXPECT_TRUE(Ready(300).ok()) << Ready(300);
  EXPECT_THAT(metrics_, HasSubstr("djinn_worker_executor_context_bytes 50"));
  const absl::Status status = Ready(299);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("has 299 bytes free"),
                    HasSubstr("takes 50 besides: lower device.memory")));
  // It was not measured.
  EXPECT_TRUE(Ready(0).ok());
}

TEST_F(SupervisorTest, NewCertificateReachesRunningAndLaterExecutors) {
  v1::TlsTexts tls;
  tls.set_certificate("first");
  supervisor_.SetTls(tls);
  Step();
  const std::optional<v1::ToExecutor> setup = executor(0).Next();
  ASSERT_TRUE(setup.has_value());
  EXPECT_EQ(setup->setup().tls().certificate(), "first");
  EXPECT_FALSE(executor(0).Next().has_value());
  executor(0).SayReady();
  Step();

  tls.set_certificate("second");
  supervisor_.SetTls(tls);
  Step();
  const std::optional<v1::ToExecutor> renewal = executor(0).Next();
  ASSERT_TRUE(renewal.has_value());
  EXPECT_EQ(renewal->tls().certificate(), "second");
  // The tenant takes the spare executor, and another one starts.
  Lease("red", "l1");
  ASSERT_EQ(launcher_.executors.size(), 2u);
  EXPECT_EQ(executor(1).Next()->setup().tls().certificate(), "second");
  EXPECT_EQ(executor(0).Orders().leases_size(), 1);
}

TEST_F(SupervisorTest, FirstLeaseTakesTheSpareExecutorAndNamesItsAddress) {
  Step();
  Lease("a", "a1");
  EXPECT_THAT(Endpoints(), ElementsAre(std::pair("a", launcher_.addresses[0])));
  const v1::DesiredState orders = executor(0).Orders();
  EXPECT_EQ(orders.revision(), 1);
  ASSERT_EQ(orders.leases_size(), 1);
  // Another one is ready for the next tenant.
  EXPECT_THAT(launcher_.executors, SizeIs(2));
}

TEST_F(SupervisorTest, OrdersNameNoOtherTenantWorkerOrSession) {
  Step();
  v1::DesiredState desired;
  desired.set_revision(1);
  *desired.add_leases() = LeaseOf("a", "a1");
  *desired.add_leases() = LeaseOf("b", "b1");
  desired.add_peers()->set_worker_id("w1");
  desired.add_sharing_tenants("a");
  desired.add_batching_tenants("a");
  desired.add_batching_tenants("b");
  v1::GraphPhase* const phase = desired.add_graph_phases();
  phase->set_fingerprint("graph");
  phase->add_tenants("b");
  desired.add_graph_phases()->set_fingerprint("graph of all");
  supervisor_.Apply(desired);
  Step();
  const v1::DesiredState of_a = executor(0).Orders();
  ASSERT_EQ(of_a.leases_size(), 1);
  EXPECT_EQ(UncheckedClaims(of_a.leases(0)).tenant(), "a");
  EXPECT_THAT(of_a.peers(), IsEmpty());
  EXPECT_THAT(of_a.sharing_tenants(), IsEmpty());
  EXPECT_THAT(of_a.batching_tenants(), ElementsAre("a"));
  EXPECT_EQ(of_a.DebugString().find("\"b\""), std::string::npos);
  // Neither has reported a graph.
  EXPECT_THAT(of_a.graph_phases(), IsEmpty());
  EXPECT_THAT(executor(1).Orders().graph_phases(), IsEmpty());
}

TEST_F(SupervisorTest, PhaseIsToldToAnExecutorThatReportsTheGraph) {
  Step();
  v1::DesiredState desired;
  desired.set_revision(++revision_);
  *desired.add_leases() = LeaseOf("a", "a1");
  *desired.add_leases() = LeaseOf("b", "b1");
  desired.add_graph_phases()->set_fingerprint("of all");
  v1::GraphPhase* const of_b = desired.add_graph_phases();
  of_b->set_fingerprint("of b");
  of_b->add_tenants("b");
  supervisor_.Apply(desired);
  Step();
  EXPECT_THAT(executor(0).Orders().graph_phases(), IsEmpty());
  v1::WorkerState report = Holding("a", "a1", 1, 1);
  const auto report_graph = [&](const std::string& fingerprint, uint64_t runs) {
    v1::HeldGraph* const graph = report.add_graphs();
    graph->set_fingerprint(fingerprint);
    graph->set_run_count(runs);
  };
  const auto told = [&] {
    executor(0).Report(report);
    Step();
    std::vector<std::string> fingerprints;
    const v1::DesiredState orders = executor(0).Orders();
    for (const v1::GraphPhase& phase : orders.graph_phases()) {
      fingerprints.push_back(phase.fingerprint());
    }
    return fingerprints;
  };
  report_graph("of all", 5);
  report_graph("of b", 5);
  report_graph("unknown", 5);
  EXPECT_THAT(told(), ElementsAre("of all"));
  EXPECT_THAT(told(), IsEmpty());
  // Another plan of the graph must learn it again.
  report.mutable_graphs(0)->set_run_count(4);
  EXPECT_THAT(told(), ElementsAre("of all"));
  // What becomes known later is told at once, and so is what a new stream says.
  desired.Clear();
  desired.set_revision(++revision_);
  desired.add_graph_phases()->set_fingerprint("unknown");
  desired.add_graph_phases()->set_fingerprint("of nobody");
  supervisor_.Apply(desired);
  EXPECT_THAT(told(), ElementsAre("unknown"));
  desired.set_revision(1);
  desired.add_graph_phases()->set_fingerprint("of all");
  supervisor_.Apply(desired);
  EXPECT_THAT(told(), UnorderedElementsAre("of all", "unknown"));
}

TEST_F(SupervisorTest, ReportsOfTwoTenantsAreOneReport) {
  Step();
  Lease("a", "a1");
  Lease("b", "b1");
  v1::DesiredState desired;
  desired.set_revision(++revision_);
  desired.add_peers()->set_worker_id("w1");
  supervisor_.Apply(desired);
  v1::WorkerState of_a = Holding("a", "a1", 3, 1);
  const auto add_link = [](uint64_t rate, v1::WorkerState* report) {
    v1::PeerLink* const link = report->add_links();
    link->set_worker_id("w1");
    link->set_bytes_per_second(rate);
  };
  add_link(300, &of_a);
  of_a.add_contents()->set_tenant("b");
  of_a.mutable_executed()->set_runs(2);
  of_a.set_memory_bytes(kMemory / 2);
  of_a.set_free_bytes(kMemory / 2 - 100);
  executor(0).Report(of_a);
  v1::WorkerState of_b = Holding("b", "b1", 4, 1);
  of_b.mutable_executed()->set_runs(5);
  add_link(200, &of_b);
  executor(1).Report(of_b);
  Step();
  const v1::WorkerState state = supervisor_.Snapshot();
  EXPECT_EQ(state.sessions_size(), 2);
  EXPECT_EQ(state.executed().runs(), 7);
  EXPECT_EQ(state.memory_bytes(), kMemory);
  EXPECT_EQ(state.free_bytes(), kMemory - 100);
  // An executor speaks for its own tenant only.
  EXPECT_EQ(state.contents(0).tenant(), "a");
  ASSERT_EQ(state.links_size(), 1);
  EXPECT_EQ(state.links(0).bytes_per_second(), 300);
}

TEST_F(SupervisorTest, DeathEndsOnlyTheTenantsLeases) {
  Step();
  Lease("a", "a1");
  Lease("b", "b1");
  clock_.Advance(absl::Seconds(4));
  executor(0).Report(Holding("a", "a1", 3, 1));
  executor(1).Report(Holding("b", "b1", 4, 1));
  Step();
  executor(0).Die();
  Step();
  EXPECT_THAT(launcher_.killed, ElementsAre(1));
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST")));
  const v1::WorkerState state = supervisor_.Snapshot();
  ASSERT_EQ(state.sessions_size(), 1);
  EXPECT_EQ(UncheckedClaims(state.sessions(0).lease()).tenant(), "b");
  // The last known use is billed.
  EXPECT_EQ(state.ended_leases(0).use().device_time().seconds(), 3);
  EXPECT_THAT(Endpoints(), ElementsAre(std::pair("b", launcher_.addresses[1])));
}

TEST_F(SupervisorTest, SettledLeaseOfADeadExecutorIsForgotten) {
  Step();
  Lease("a", "a1");
  executor(0).Die();
  Step();
  ASSERT_THAT(Ended(), SizeIs(1));
  v1::DesiredState desired;
  desired.set_revision(++revision_);
  desired.add_settled_lease_ids("a1");
  supervisor_.Apply(desired);
  EXPECT_THAT(Ended(), IsEmpty());
}

TEST_F(SupervisorTest, TenantThatKeepsKillingWaitsLongerEachTime) {
  Step();
  // The first executor after a death starts at once.
  Lease("a", "a1");
  executor(0).Die();
  Step();
  size_t launched = launcher_.executors.size();
  Lease("a", "a2");
  FakeExecutor* second = launcher_.executors[launched - 1].get();
  second->Die();
  Step();
  launched = launcher_.executors.size();
  Lease("a", "a3");
  // The spare one stays for others, and the tenant has an address already.
  EXPECT_THAT(Endpoints(), SizeIs(1));
  EXPECT_THAT(launcher_.executors, SizeIs(launched));
  clock_.Advance(absl::Milliseconds(999));
  Step();
  EXPECT_THAT(launcher_.executors, SizeIs(launched));
  clock_.Advance(absl::Milliseconds(2));
  Step();
  ASSERT_THAT(launcher_.executors, SizeIs(launched + 1));
  EXPECT_EQ(Endpoints()["a"], launcher_.addresses.back());
  EXPECT_EQ(launcher_.executors.back()->Orders().leases_size(), 1);
}

TEST(BackoffTest, DoublesFromTheSecondDeathUpToItsMaximum) {
  const SupervisorOptions options;
  std::vector<int64_t> seconds;
  for (int deaths = 0; deaths < 9; ++deaths) {
    seconds.push_back(absl::ToInt64Seconds(BackoffOf(options, deaths)));
  }
  EXPECT_THAT(seconds, ElementsAre(0, 0, 1, 2, 4, 8, 16, 30, 30));
  EXPECT_EQ(BackoffOf(options, 1'000'000), absl::Seconds(30));
}

TEST_F(SupervisorTest, DeathsAreForgottenAfterAWhile) {
  Step();
  // Returns whether the tenant's next executor waits for its start.
  const auto waits = [&](const std::string& lease_id) {
    Lease("a", lease_id);
    for (size_t i = 0; i < launcher_.addresses.size(); ++i) {
      if (launcher_.addresses[i] != Endpoints()["a"]) continue;
      executor(i).Die();
      Step();
      return false;
    }
    return true;
  };
  EXPECT_FALSE(waits("a1"));
  EXPECT_FALSE(waits("a2"));
  clock_.Advance(Supervisor::kForgiveAfter + absl::Seconds(1));
  Step();
  // The third and the fourth are the first and the second again.
  EXPECT_FALSE(waits("a3"));
  EXPECT_FALSE(waits("a4"));
  EXPECT_TRUE(waits("a5"));
}

TEST_F(SupervisorTest, TenantBeyondTheLimitGetsATypedEnd) {
  Step();
  Lease("a", "a1");
  executor(0).Report(Holding("a", "a1", 1, 1));
  Lease("b", "b1");
  executor(1).Report(Holding("b", "b1", 1, 1));
  Step();
  Lease("c", "c1");
  EXPECT_THAT(Ended(), ElementsAre(std::pair("c1", "EXECUTORS_IN_USE")));
  EXPECT_THAT(Endpoints(), SizeIs(2));
}

TEST_F(SupervisorTest, ExecutorWithoutLeasesMakesRoom) {
  Step();
  Lease("a", "a1");
  Lease("b", "b1");
  executor(0).Report(HoldingNothing(1));
  executor(1).Report(Holding("b", "b1", 1, 1));
  Step();
  Lease("c", "c1");
  Step();
  EXPECT_THAT(Ended(), IsEmpty());
  EXPECT_EQ(Endpoints().count("a"), 0);
  EXPECT_EQ(Endpoints().count("c"), 1);
}

TEST_F(SupervisorTest, ExecutorThatIsAboutToGetALeaseMakesNoRoom) {
  Step();
  Lease("a", "a1");
  Lease("b", "b1");
  executor(0).Report(HoldingNothing(1));
  executor(1).Report(Holding("b", "b1", 1, 1));
  Step();
  while (executor(0).Orders().revision() > 0) {
  }
  v1::DesiredState desired;
  desired.set_revision(++revision_);
  *desired.add_leases() = LeaseOf("a", "a2");
  *desired.add_leases() = LeaseOf("c", "c1");
  supervisor_.Apply(desired);
  Step();
  const v1::DesiredState of_a = executor(0).Orders();
  ASSERT_EQ(of_a.leases_size(), 1);
  EXPECT_EQ(UncheckedClaims(of_a.leases(0)).lease_id(), "a2");
  EXPECT_THAT(Ended(), ElementsAre(std::pair("c1", "EXECUTORS_IN_USE")));
}

TEST_F(SupervisorTest, LeaseOfAnExecutorThatJustEndedIsRefused) {
  Step();
  Lease("a", "a1");
  Lease("b", "b1");
  executor(0).Report(HoldingNothing(1));
  executor(1).Report(HoldingNothing(1));
  Step();
  v1::DesiredState desired;
  desired.set_revision(++revision_);
  *desired.add_leases() = LeaseOf("a", "a2");
  *desired.add_leases() = LeaseOf("c", "c1");
  // The executor of a, which is chosen, dies while another one for c is made.
  launcher_.on_listen = [this] {
    executor(0).Die();
    Step();
  };
  supervisor_.Apply(desired);
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a2", "EXECUTOR_LOST")));
}

TEST_F(SupervisorTest, TwoTenantsThatArriveTogetherShareOneFreePlace) {
  Step();
  Lease("b", "b1");
  executor(0).Report(Holding("b", "b1", 1, 1));
  Step();
  v1::DesiredState desired;
  desired.set_revision(++revision_);
  *desired.add_leases() = LeaseOf("a", "a1");
  *desired.add_leases() = LeaseOf("c", "c1");
  supervisor_.Apply(desired);
  Step();
  EXPECT_EQ(executor(1).Orders().leases_size(), 1);
  EXPECT_THAT(Ended(), ElementsAre(std::pair("c1", "EXECUTORS_IN_USE")));
}

TEST_F(SupervisorTest, LeaseThatWasNeverGivenIsTakenAwayAndNotReported) {
  Step();
  Lease("a", "a1");
  (void)executor(0).Orders();
  v1::WorkerState report = Holding("a", "a1", 1, 1);
  *report.add_sessions()->mutable_lease() = LeaseOf("a", "an ended one");
  executor(0).Report(report);
  Step();
  EXPECT_THAT(executor(0).Orders().drop_lease_ids(),
              ElementsAre("an ended one"));
  EXPECT_EQ(supervisor_.Snapshot().sessions_size(), 1);
}

TEST_F(SupervisorTest, GarbageEndsTheExecutor) {
  Step();
  Lease("a", "a1");
  // Neither ready, nor a report, nor health.
  executor(0).Send(v1::FromExecutor());
  Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST")));
}

TEST_F(SupervisorTest, ExecutorThatIsNotReadyInTimeIsEnded) {
  Step();
  Lease("a", "a1");
  clock_.Advance(absl::Seconds(61));
  Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST")));
}

TEST_F(SupervisorTest, NodeThatTakesTooLongEndsItsExecutorOnly) {
  Step();
  Lease("a", "a1");
  Lease("b", "b1");
  v1::FromExecutor health;
  const auto after_seconds = [&](int seconds, uint64_t mark_of_a) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(absl::Seconds(1));
      health.mutable_health()->set_mark(mark_of_a);
      executor(0).Send(health);
      health.mutable_health()->set_mark(static_cast<uint64_t>(100 + i));
      executor(1).Send(health);
      Step();
    }
  };
  executor(0).SayReady();
  executor(1).SayReady();
  after_seconds(299, 5);
  EXPECT_THAT(Ended(), IsEmpty());
  // Another node, and then one that does not end.
  after_seconds(299, 6);
  EXPECT_THAT(Ended(), IsEmpty());
  after_seconds(3, 6);
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "NODE_LIMIT")));
}

TEST_F(SupervisorTest, ATenantsOwnLimitOfNodesHoldsIfItIsShorter) {
  Step();
  const auto lease = [this](const std::string& tenant, const std::string& id,
                            int seconds) {
    v1::SignedLease signed_lease = LeaseOf(tenant, id);
    v1::LeaseClaims claims = UncheckedClaims(signed_lease);
    claims.mutable_tenant_limits()->mutable_node_limit()->set_seconds(seconds);
    signed_lease.set_claims(claims.SerializeAsString());
    Lease(signed_lease);
  };
  // The worker's own limit is shorter than these. Only the first tenant gets a
  // shorter one later, with another revision of its lease.
  lease("a", "a1", 600);
  lease("b", "b1", 600);
  executor(0).SayReady();
  executor(1).SayReady();
  v1::FromExecutor health;
  health.mutable_health()->set_mark(5);
  const auto after_seconds = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(absl::Seconds(1));
      executor(0).Send(health);
      executor(1).Send(health);
      Step();
    }
  };
  after_seconds(29);
  lease("a", "a1", 30);
  after_seconds(1);
  EXPECT_THAT(Ended(), IsEmpty());
  after_seconds(2);
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "NODE_LIMIT")));
}

TEST_F(SupervisorTest, IdleExecutorIsNotEnded) {
  Step();
  Lease("a", "a1");
  executor(0).SayReady();
  v1::FromExecutor health;
  health.mutable_health()->set_mark(0);
  for (int i = 0; i < 400; ++i) {
    clock_.Advance(absl::Seconds(1));
    executor(0).Send(health);
    Step();
  }
  EXPECT_THAT(Ended(), IsEmpty());
}

TEST_F(SupervisorTest, SilentExecutorIsEnded) {
  Step();
  Lease("a", "a1");
  executor(0).SayReady();
  Step();
  // A pause of the whole machine counts for a second.
  clock_.Advance(absl::Hours(1));
  Step();
  EXPECT_THAT(Ended(), IsEmpty());
  for (int i = 0; i < 31; ++i) {
    clock_.Advance(absl::Seconds(1));
    Step();
  }
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST")));
}

TEST_F(SupervisorTest, NewStreamOfTheCoordinatorIsANewStreamOfTheExecutor) {
  Step();
  Lease("a", "a1");
  EXPECT_EQ(executor(0).Orders().revision(), 1);
  Lease("a", "a2");
  EXPECT_EQ(executor(0).Orders().revision(), 2);
  revision_ = 0;
  Lease("a", "a2");
  EXPECT_EQ(executor(0).Orders().revision(), 1);
}

TEST_F(SupervisorTest, SessionIsFoundAtItsTenantsExecutor) {
  Step();
  Lease("a", "a1");
  Lease("b", "b1");
  EXPECT_EQ(supervisor_.AddressOf("session-of-a1"), launcher_.addresses[0]);
  EXPECT_EQ(supervisor_.AddressOf("session-of-b1"), launcher_.addresses[1]);
  EXPECT_EQ(supervisor_.AddressOf("session-of-c1"), "");
  EXPECT_TRUE(supervisor_.HasSession(1, "session-of-a1"));
  EXPECT_FALSE(supervisor_.HasSession(1, "session-of-b1"));
  EXPECT_FALSE(supervisor_.HasSession(9, "session-of-a1"));
  executor(0).Die();
  Step();
  EXPECT_EQ(supervisor_.AddressOf("session-of-a1"), "");
}

TEST_F(SupervisorTest, FetchesAreServedAsLongAsTheExecutorLives) {
  std::map<uint64_t, std::weak_ptr<void>> served;
  SupervisorOptions options = Options();
  options.serve_fetching = [&](uint64_t number, Descriptor /*socket*/) {
    const std::shared_ptr<void> made = std::make_shared<int>(0);
    served[number] = made;
    return made;
  };
  FakeLauncher launcher;
  Supervisor supervisor(options, &launcher, &arbiter_, &clock_, [] {});
  supervisor.Step(absl::ZeroDuration());
  ASSERT_THAT(served, SizeIs(1));
  EXPECT_FALSE(served.begin()->second.expired());
  launcher.executors[0]->Die();
  supervisor.Step(absl::ZeroDuration());
  EXPECT_TRUE(served.begin()->second.expired());
}

TEST(SupervisionLinkTest, RevisionOneBeginsTheNextStream) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Descriptor supervisor(ends[0]);
  SupervisionLink link{Descriptor(ends[1])};
  std::string frames;
  v1::ToExecutor message;
  message.mutable_setup()->set_worker_id("w0");
  frames += EncodeFrame(message);
  for (const uint64_t revision : {1, 2, 1}) {
    message.mutable_desired()->set_revision(revision);
    frames += EncodeFrame(message);
  }
  ASSERT_TRUE(WriteSome(supervisor.get(), &frames).ok());
  EXPECT_EQ(link.ReadSetup()->worker_id(), "w0");
  const auto first = link.Open();
  v1::DesiredState desired;
  ASSERT_TRUE(first->Read(&desired));
  ASSERT_TRUE(first->Read(&desired));
  EXPECT_EQ(desired.revision(), 2);
  EXPECT_FALSE(first->Read(&desired));
  EXPECT_TRUE(first->Finish().ok()) << "nothing was lost";
  EXPECT_TRUE(first->NextAtOnce());
  const auto second = link.Open();
  ASSERT_TRUE(second->Read(&desired));
  EXPECT_EQ(desired.revision(), 1);
}

TEST(SupervisionLinkTest, EndOfTheSupervisorEndsEveryWait) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  SupervisionLink link{Descriptor(ends[1])};
  const auto stream = link.Open();
  std::thread reader([&] {
    v1::DesiredState desired;
    EXPECT_FALSE(stream->Read(&desired));
  });
  {
    const Descriptor supervisor(ends[0]);
  }
  EXPECT_FALSE(link.AwaitOrders());
  bool serving = false;
  EXPECT_TRUE(link.AwaitEnd(absl::InfiniteDuration(), &serving));
  reader.join();
  EXPECT_EQ(stream->Finish().message(), "the supervisor is gone");
  EXPECT_FALSE(stream->NextAtOnce());
}

}  // namespace
}  // namespace djinn::worker
