// Tests the use of a lease that a client learns: it must equal what the
// coordinator bills.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "common/base/proto_duration.h"
#include "common/lease/phase_times.h"
#include "common/metrics/exposition.h"
#include "common/srg/canonical.h"
#include "gpu_worker/testing/core_fixture.h"
#include "gpu_worker/testing/core_peers.h"

namespace djinn::worker {
namespace {

// Each node takes a second of the fake clock.
class MeteringTest : public TwoCoresTest {
 protected:
  MeteringTest() {
    device_.SetExecuteHook([this](const std::string&) {
      clock_.Advance(absl::Seconds(1));
      return absl::OkStatus();
    });
  }
  // Has the coordinator announce the graph's phase to these tenants, or to all
  // tenants without an announcement of their own.
  void Tell(const srg::Graph& graph, v1::Phase phase,
            const std::vector<uint32_t>& caches = {},
            const std::vector<std::string>& tenants = {}) {
    v1::DesiredState desired = Agreed();
    v1::GraphPhase* const known = desired.add_graph_phases();
    known->set_fingerprint(srg::Fingerprint(graph));
    known->set_phase(phase);
    known->mutable_cache_slots()->Assign(caches.begin(), caches.end());
    known->mutable_tenants()->Assign(tenants.begin(), tenants.end());
    core_->Apply(desired);
  }
  bool MetricsSay(const std::string& line) {
    return Metrics().find(line) != std::string::npos;
  }
  // Opens a session that may use so much device time.
  std::unique_ptr<TestClient> OpenWithCredit(absl::Duration device_time) {
    v1::LeaseClaims lease = Lease("s1", "t1");
    *lease.mutable_credits()->mutable_device_time() =
        ToProtoDuration(device_time);
    Grant(lease, 1'000'000);
    return ToFill(Connect(HelloFor("s1")));
  }
  // Opens a session that can run graph 1, Fill(), on storage 1.
  std::unique_ptr<TestClient> OpenToFill() { return ToFill(Open()); }
  static std::unique_ptr<TestClient> ToFill(
      std::unique_ptr<TestClient> client) {
    client->Create(1, 8);
    client->Define(1, Fill());
    return client;
  }
  v1::LeaseUse Billed() { return core_->Snapshot().sessions(0).lease_use(); }
  static absl::Duration DeviceTime(const v1::MeteredUse& use) {
    return absl::Nanoseconds(static_cast<int64_t>(use.device_nanoseconds()));
  }
};

TEST_F(MeteringTest, SaysWhatEverythingBeforeItTook) {
  const std::unique_ptr<TestClient> client = OpenToFill();
  EXPECT_EQ(client->Meter().runs(), 0u);
  client->Run(1, {1}, {1});
  client->Run(1, {1}, {2});
  const v1::MeteredUse use = client->Meter();
  // The answer above does not include this later run.
  client->Run(1, {1}, {3});
  EXPECT_EQ(DeviceTime(use), absl::Seconds(2));
  EXPECT_EQ(use.runs(), 2u);
  EXPECT_EQ(DeviceTime(client->Meter()), absl::Seconds(3));
}

TEST_F(MeteringTest, CostsOfRequestsAddUpToTheBill) {
  Grant(Lease("s1", "t1"), 1'000'000);
  const std::unique_ptr<TestClient> client = Connect(HelloFor("s1"));
  client->Create(1, 8);
  client->Define(1, Fill());
  absl::Duration time;
  uint64_t bytes = 0;
  uint64_t runs = 0;
  v1::MeteredUse before;
  for (int request = 0; request < 50; ++request) {
    for (int run = 0; run <= request % 3; ++run) client->Run(1, {1}, {1});
    client->Read(1, 2);
    if (request % 10 == 0) {
      const std::string value(3000 + request, 'x');
      client->InstallTransfer(100 + request, 1 + request, value);
      client->WaitDecision(1 + request);
      client->SendBytes(1 + request, value);
    }
    const v1::MeteredUse now = client->Meter();
    time += DeviceTime(now) - DeviceTime(before);
    bytes += now.received_bytes() + now.sent_bytes() - before.received_bytes() -
             before.sent_bytes();
    runs += now.runs() - before.runs();
    before = now;
  }
  EXPECT_EQ(runs, 17u * 1 + 17 * 2 + 16 * 3);
  // The last answer may be sent before its own step is charged.
  EXPECT_TRUE(WaitUntil([&] { return !core_->Snapshot().queued_runs(); }));
  const v1::LeaseUse billed = Billed();
  EXPECT_EQ(FromProtoDuration(billed.device_time()), time);
  // The last question and its answer are billed, but the answer does not count
  // them.
  EXPECT_GE(billed.bytes(), bytes);
  EXPECT_LE(billed.bytes(), bytes + bytes / 1000 + 64);
}

// Only nodes take time of the fake clock.
TEST_F(MeteringTest, LeasesAddUpToTheDevicesTimeAndThatToTheExecutors) {
  constexpr int kSessions = 4;
  for (int i = 0; i < kSessions; ++i) {
    const std::string session = "s" + std::to_string(i);
    Grant(Lease(session, i % 2 == 0 ? "t1" : "t2"), 1'000'000);
    const std::unique_ptr<TestClient> client = Connect(HelloFor(session));
    client->Create(1, 8);
    client->Define(1, Fill());
    for (int run = 0; run <= i; ++run) client->Run(1, {1}, {1});
    client->Read(1, 2);
    // The answers are sent before the turn is charged. The next turn comes
    // after the charge.
    client->Meter();
    client->Break();
  }
  EXPECT_TRUE(WaitUntil(
      [&] { return core_->detached_sessions() == size_t{kSessions}; }));
  const v1::WorkerState state = core_->Snapshot();
  absl::Duration of_leases;
  for (const v1::HeldSession& held : state.sessions()) {
    of_leases += FromProtoDuration(held.lease_use().device_time());
  }
  EXPECT_EQ(of_leases, absl::Seconds(1 + 2 + 3 + 4));
  EXPECT_EQ(FromProtoDuration(state.executed().device_time()), of_leases);
  EXPECT_EQ(FromProtoDuration(state.executed().executor_time()), of_leases);
}

TEST_F(MeteringTest, TimeIsOfThePhaseThatRuns) {
  FakeGraph twice;
  const uint32_t sum = twice.Bound();
  twice.FillInPlace(sum, 2);
  twice.FillInPlace(sum, 2);
  const std::unique_ptr<TestClient> client = OpenToFill();
  client->Define(2, twice.get());
  client->Run(1, {1}, {1});
  client->Read(1, 2);
  // Now the coordinator knows the phases.
  Tell(Fill(), v1::PHASE_LLM_DECODE);
  Tell(twice.get(), v1::PHASE_TRAINING);
  // Announces a graph that this worker does not have, without a known phase.
  v1::DesiredState strange = Agreed();
  strange.add_graph_phases()->set_fingerprint("elsewhere");
  core_->Apply(strange);
  for (int i = 0; i < 3; ++i) {
    client->Run(1, {1}, {1});
    client->Run(2, {1}, {1, 2});
    client->Read(1, 2);
  }
  client->Meter();
  const v1::WorkerState state = core_->Snapshot();
  const PhaseTimes phases(state.executed().phases());
  EXPECT_EQ(phases.of(v1::PHASE_UNSPECIFIED), absl::Seconds(1));
  EXPECT_EQ(phases.of(v1::PHASE_LLM_DECODE), absl::Seconds(3));
  EXPECT_EQ(phases.of(v1::PHASE_TRAINING), absl::Seconds(6));
  EXPECT_EQ(phases.total(), FromProtoDuration(state.executed().device_time()));
  EXPECT_EQ(PhaseTimes(Billed().phases()), phases);
  EXPECT_TRUE(MetricsSay(
      "djinn_worker_device_busy_seconds_total{phase=\"training\"} 6\n"));
}

TEST_F(MeteringTest, AGraphIsToATenantWhatWasSaidOfThatOne) {
  const std::unique_ptr<TestClient> mine = Open("s1", "t1");
  const std::unique_ptr<TestClient> other = Open("s2", "t2");
  for (TestClient* const client : {mine.get(), other.get()}) {
    client->Create(1, 8);
    client->Define(1, Fill());
  }
  const auto run = [&] {
    for (TestClient* const client : {mine.get(), other.get()}) {
      client->Run(1, {1}, {1});
      client->Meter();
    }
  };
  run();
  // One tenant trains with the graph.
  Tell(Fill(), v1::PHASE_TRAINING, {0}, {"t2"});
  run();
  EXPECT_EQ(core_->Snapshot().memory().cache_bytes(), 8u);
  Tell(Fill(), v1::PHASE_FORWARD);
  run();
  Tell(Fill(), v1::PHASE_LLM_DECODE, {}, {"t1", "t3"});
  run();
  const v1::WorkerState state = core_->Snapshot();
  EXPECT_EQ(state.memory().cache_bytes(), 8u);
  const PhaseTimes all(state.executed().phases());
  EXPECT_EQ(all.of(v1::PHASE_UNSPECIFIED), absl::Seconds(3));
  EXPECT_EQ(all.of(v1::PHASE_TRAINING), absl::Seconds(3));
  EXPECT_EQ(all.of(v1::PHASE_FORWARD), absl::Seconds(1));
  EXPECT_EQ(all.of(v1::PHASE_LLM_DECODE), absl::Seconds(1));
}

TEST_F(MeteringTest, CachesAreCountedOnceTheyAreKnown) {
  const std::unique_ptr<TestClient> client = Open();
  client->Create(1, 8);
  client->Create(2, 100);
  client->Define(1, Fill());
  client->Run(1, {1}, {1});
  client->Read(1, 2);
  EXPECT_EQ(core_->Snapshot().memory().cache_bytes(), 0u);
  Tell(Fill(), v1::PHASE_LLM_DECODE, {0});
  client->Run(1, {1}, {1});
  client->Read(1, 2);
  const v1::WorkerState state = core_->Snapshot();
  EXPECT_EQ(state.memory().cache_bytes(), 8u);
  EXPECT_EQ(state.memory().storage_bytes(), 108u);
  const v1::SessionUse& use = state.sessions(0).use();
  EXPECT_EQ(use.caches().count(), 1u);
  EXPECT_EQ(use.caches().size_bytes(), 8u);
  EXPECT_EQ(use.storages().size_bytes(), 100u);
  const auto says = [&](const std::string& residency, int bytes) {
    return MetricsSay("residency=\"" + residency + "\"} " +
                      std::to_string(bytes) + "\n");
  };
  EXPECT_TRUE(says("kv_cache", 8));
  EXPECT_TRUE(says("storage", 100));
}

// One turn goes on with the session's next messages while they are short.
TEST_F(MeteringTest, OneTurnMayBeOfSeveralPhases) {
  device_.SetExecuteHook([this](const std::string&) {
    clock_.Advance(absl::Microseconds(1));
    return absl::OkStatus();
  });
  const std::unique_ptr<TestClient> client = OpenToFill();
  client->Define(2, AddTo());
  client->Create(2, 8);
  client->Run(1, {2}, {1});
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1}, {1})));
  Tell(Fill(), v1::PHASE_LLM_DECODE);
  Tell(AddTo(), v1::PHASE_LLM_PREFILL);
  for (int i = 0; i < 20; ++i) {
    client->Run(1, {1}, {1});
    client->Run(2, {1, 2}, {});
  }
  client->Read(1, 2);
  EXPECT_TRUE(WaitUntil([&] {
    return FromProtoDuration(Billed().device_time()) == absl::Microseconds(42);
  }));
  const PhaseTimes phases(Billed().phases());
  EXPECT_EQ(phases.of(v1::PHASE_UNSPECIFIED), absl::Microseconds(2));
  EXPECT_EQ(phases.of(v1::PHASE_LLM_DECODE), absl::Microseconds(20));
  EXPECT_EQ(phases.of(v1::PHASE_LLM_PREFILL), absl::Microseconds(20));
}

TEST_F(MeteringTest, TimeAroundATurnIsBilled) {
  const std::unique_ptr<TestClient> client = OpenWithCredit(absl::Seconds(6));
  std::atomic<std::thread::id> executor;
  device_.SetExecuteHook([&](const std::string&) {
    executor = std::this_thread::get_id();
    clock_.Advance(absl::Seconds(3));
    return absl::OkStatus();
  });
  // The run uses up half of the credit, and the executor takes a second to
  // report that.
  core_->SetChangeListener([&] {
    if (std::this_thread::get_id() == executor)
      clock_.Advance(absl::Seconds(1));
  });
  client->Run(1, {1}, {1});
  client->Read(1, 2);
  EXPECT_TRUE(WaitUntil([&] {
    return FromProtoDuration(Billed().device_time()) == absl::Seconds(4);
  }));
  const v1::WorkerState state = core_->Snapshot();
  EXPECT_EQ(FromProtoDuration(state.executed().device_time()),
            absl::Seconds(4));
  EXPECT_EQ(FromProtoDuration(state.executed().executor_time()),
            absl::Seconds(4));
  EXPECT_TRUE(MetricsSay("djinn_worker_housekeeping_seconds_total 0\n"));
  core_->SetChangeListener(nullptr);
}

TEST_F(MeteringTest, TimeSpentForNoSessionIsCountedAsSuch) {
  const std::unique_ptr<TestClient> client = OpenWithCredit(absl::Seconds(1));
  std::atomic<std::thread::id> executor;
  device_.SetExecuteHook([&](const std::string&) {
    executor = std::this_thread::get_id();
    clock_.Advance(absl::Seconds(1));
    return absl::OkStatus();
  });
  // The executor reports that the session waits, which takes it a second.
  core_->SetChangeListener([&] {
    if (std::this_thread::get_id() == executor &&
        core_->Snapshot().sessions(0).out_of_credit()) {
      clock_.Advance(absl::Seconds(1));
    }
  });
  client->Run(1, {1}, {1});
  client->Run(1, {1}, {1});
  EXPECT_TRUE(WaitUntil([&] {
    return MetricsSay("djinn_worker_housekeeping_seconds_total 1\n");
  }));
  const v1::WorkerState state = core_->Snapshot();
  EXPECT_EQ(FromProtoDuration(state.executed().device_time()),
            absl::Seconds(1));
  EXPECT_EQ(FromProtoDuration(state.executed().executor_time()),
            absl::Seconds(2));
  core_->SetChangeListener(nullptr);
}

TEST_F(MeteringTest, WaitingIsNotTheExecutorsWork) {
  const std::unique_ptr<TestClient> client = OpenToFill();
  for (int run = 0; run < 3; ++run) {
    client->Run(1, {1}, {1});
    client->Read(1, 2);
    EXPECT_TRUE(WaitUntil([&] { return !core_->Snapshot().queued_runs(); }));
    // The executor waits once its time stands still.
    EXPECT_TRUE(WaitUntil([&] {
      const auto before = core_->Snapshot().executed().executor_time();
      clock_.Advance(absl::Milliseconds(1));
      const auto after = core_->Snapshot().executed().executor_time();
      return FromProtoDuration(before) == FromProtoDuration(after);
    }));
    const absl::Duration before =
        FromProtoDuration(core_->Snapshot().executed().executor_time());
    clock_.Advance(absl::Seconds(7));
    EXPECT_EQ(FromProtoDuration(core_->Snapshot().executed().executor_time()),
              before);
  }
}

TEST_F(MeteringTest, AnAnswerIsSmall) {
  const std::unique_ptr<TestClient> client = OpenToFill();
  client->Run(1, {1}, {1});
  const v1::MeteredUse before = client->Meter();
  const v1::MeteredUse after = client->Meter();
  // Only a question and its answer were added.
  EXPECT_LE(after.received_bytes() - before.received_bytes(), 10u);
  EXPECT_LE(after.sent_bytes() - before.sent_bytes(), 40u);
}

TEST_F(MeteringTest, AnAnswerThatWasLostComesAgain) {
  const std::unique_ptr<TestClient> client = OpenToFill();
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1}, {1})));
  Break(client.get());
  Resume(client.get());
  EXPECT_EQ(DeviceTime(client->Meter()), absl::Seconds(1));
}

TEST_F(MeteringTest, FreesOutsideOfTheWindowAreBilled) {
  const std::unique_ptr<TestClient> client = Open();
  constexpr uint64_t kStorages = 40;
  for (uint64_t id = 1; id <= kStorages; ++id) client->Create(id, 8);
  const v1::MeteredUse before = client->Meter();
  for (uint64_t id = 1; id <= kStorages; ++id) client->Free({id});
  const v1::MeteredUse after = client->Meter();
  // Each message has its sequence and an id, with their tags.
  EXPECT_GE(after.received_bytes() - before.received_bytes(), 6 * kStorages);
}

TEST_F(MeteringTest, SuppliedGraphIsBilled) {
  WorkerCoreOptions options;
  options.graph_cache.max_plans = 1;
  Start(options);
  const std::unique_ptr<TestClient> client = OpenToFill();
  client->Define(2, AddTo());
  const v1::MeteredUse before = client->Meter();
  client->Run(1, {1}, {1});
  client->WaitFor([](const v1::ControlResponse& r) { return r.has_need(); });
  client->Supply(1, Fill());
  const v1::MeteredUse after = client->Meter();
  EXPECT_GE(after.received_bytes() - before.received_bytes(),
            srg::ToProto(Fill()).ByteSizeLong());
}

TEST_F(MeteringTest, CancelledMessagesAreBilled) {
  const std::unique_ptr<TestClient> client = OpenToFill();
  const v1::MeteredUse before = client->Meter();
  constexpr uint64_t kBytes = 50'000;
  NodeGate gate(&device_, 1);
  client->Run(1, {1}, {1});
  gate.WaitReached(1);
  client->InstallInline(2, std::string(kBytes, 'x'));
  client->SendCancel();
  client->InstallInline(3, std::string(kBytes, 'x'));
  // Both messages arrived before the end of the run, which is billed itself.
  EXPECT_TRUE(WaitUntil([&] {
    return Billed().bytes() >=
           before.received_bytes() + before.sent_bytes() + 2 * kBytes;
  }));
  const uint64_t waiting = Billed().bytes();
  gate.Open();
  client->WaitFor(
      [](const v1::ControlResponse& r) { return r.has_cancelled(); });
  EXPECT_GT(Billed().bytes(), waiting);
}

TEST_F(MeteringTest, LeaveReturnsTheSessionsUse) {
  const std::unique_ptr<TestClient> client = OpenToFill();
  client->Run(1, {1}, {1});
  const uint64_t sequence = client->Leave(std::string(16, 'm'));
  const v1::Left left =
      client
          ->WaitFor([&](const v1::ControlResponse& r) {
            return r.has_left() && r.left().sequence() == sequence;
          })
          .left();
  EXPECT_FALSE(left.has_refused());
  EXPECT_EQ(DeviceTime(left.use()), absl::Seconds(1));
  EXPECT_GT(left.use().received_bytes(), 0u);
}

}  // namespace
}  // namespace djinn::worker
