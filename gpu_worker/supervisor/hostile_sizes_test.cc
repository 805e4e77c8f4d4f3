// Tests that an executor which its tenant has taken over can neither bill what
// nobody used, nor take the room of others' reports, nor keep the supervisor
// from hearing them.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/relay.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::IsEmpty;

constexpr size_t kCoordinatorsLimit = size_t{64} << 20;

// Adds graphs with fingerprints of full size.
void AddGraphs(int count, v1::WorkerState* report) {
  for (int i = 0; i < count; ++i) {
    std::string fingerprint(32, 'g');
    fingerprint.replace(0, 8, absl::StrCat(10'000'000 + i));
    report->add_graphs()->set_fingerprint(fingerprint);
  }
}

// Tenant "evil" has executor 0 and lease "e1"; tenant "good" has executor 1 and
// lease "g1". Both leases are ten seconds old.
class HostileSizesTest : public SupervisorTest {
 protected:
  HostileSizesTest() {
    Step();
    Lease("evil", "e1");
    Lease("good", "g1");
    executor(0).SayReady();
    executor(1).SayReady();
    executor(0).Report(Holding("evil", "e1", 0, 1));
    executor(1).Report(Holding("good", "g1", 0, 1));
    Step();
    clock_.Advance(absl::Seconds(10));
  }

  v1::WorkerState StateAfter(v1::WorkerState report) {
    executor(0).Report(std::move(report));
    while (executor(0).unsent() > 0) Step();
    for (int i = 0; i < 10; ++i) Step();
    EXPECT_THAT(Ended(), IsEmpty());
    return supervisor_.Snapshot();
  }
};

TEST_F(HostileSizesTest, BillsAreLimitedToTheTimeSinceTheLease) {
  constexpr int kCentury = 2'000'000'000;
  v1::WorkerState report = Holding("evil", "e1", kCentury, 1);
  v1::HeldSession* const held = report.mutable_sessions(0);
  v1::LeaseUse* const use = held->mutable_lease_use();
  use->set_bytes(uint64_t{1} << 55);
  for (int i = 0; i < 3; ++i) {
    v1::PhaseUse* const phase = use->add_phases();
    phase->set_phase(v1::PHASE_TRAINING);
    phase->mutable_device_time()->set_seconds(7);
  }
  held->set_storage_bytes(10 * kMemory);
  held->mutable_use()->mutable_storages()->set_size_bytes(10 * kMemory);
  const v1::WorkerState state = StateAfter(report);
  ASSERT_EQ(state.sessions_size(), 2);
  const v1::HeldSession& evil = state.sessions(0);
  EXPECT_EQ(evil.lease_use().device_time().seconds(), 10);
  EXPECT_LE(evil.lease_use().bytes(), uint64_t{10'000'000'000'000});
  EXPECT_EQ(evil.lease_use().phases(0).device_time().seconds(), 7);
  EXPECT_EQ(evil.lease_use().phases(1).device_time().seconds(), 3);
  EXPECT_EQ(evil.lease_use().phases(2).device_time().seconds(), 0);
  EXPECT_EQ(evil.storage_bytes(), kMemory / 2);
  EXPECT_EQ(evil.use().storages().size_bytes(), kMemory / 2);
}

TEST_F(HostileSizesTest, BillsOfEndedLeasesAreLimited) {
  v1::WorkerState report;
  report.set_applied_revision(1);
  v1::EndedLease* const ended = report.add_ended_leases();
  *ended->mutable_lease() = LeaseOf("evil", "e1");
  ended->mutable_use()->mutable_device_time()->set_seconds(2'000'000'000);
  executor(0).Report(report);
  Step();
  const v1::WorkerState state = supervisor_.Snapshot();
  ASSERT_EQ(state.ended_leases_size(), 1);
  EXPECT_EQ(state.ended_leases(0).use().device_time().seconds(), 10);
}

TEST_F(HostileSizesTest, UseNeverDecreases) {
  (void)StateAfter(Holding("evil", "e1", 8, 1));
  for (const bool complete : {true, false}) {
    v1::WorkerState report = Holding("evil", "e1", 3, 1);
    report.set_complete(complete);
    EXPECT_EQ(
        StateAfter(report).sessions(0).lease_use().device_time().seconds(), 8);
  }
  v1::WorkerState report;
  report.set_complete(true);
  report.set_applied_revision(1);
  *report.add_ended_leases()->mutable_lease() = LeaseOf("evil", "e1");
  executor(0).Report(report);
  Step();
  EXPECT_EQ(
      supervisor_.Snapshot().ended_leases(0).use().device_time().seconds(), 8);
}

TEST_F(HostileSizesTest, OneExecutorsGraphsLeaveRoomForOthers) {
  v1::WorkerState honest = Holding("good", "g1", 1, 1);
  honest.add_graphs()->set_fingerprint("good");
  executor(1).Report(honest);
  v1::WorkerState report = Holding("evil", "e1", 1, 1);
  AddGraphs(65536, &report);
  const v1::WorkerState state = StateAfter(report);
  EXPECT_EQ(state.graphs_size(), 32768 + 1);
  EXPECT_EQ(state.graphs(32768).fingerprint(), "good");
}

TEST(ReportPartTest, SessionsStayAndWhatDoesNotFitIsLeftOut) {
  RelayedLeases leases;
  v1::WorkerState report;
  report.set_complete(true);
  for (int i = 0; i < 10; ++i) {
    const std::string id = absl::StrCat("e", i);
    leases[id].lease = LeaseOf("evil", id);
    v1::HeldSession* const held = report.add_sessions();
    *held->mutable_lease() = LeaseOf("evil", id);
    held->mutable_lease_use()->set_bytes(7);
    held->mutable_use()->add_models()->set_name(std::string(500, 'm'));
  }
  AddGraphs(1000, &report);
  v1::RunsAnswer* const answer = report.add_runs_answers();
  answer->add_leases()->set_lease_id(std::string(500, 'x'));
  ExecutorReport executor;
  (void)executor.Apply(report, leases);
  v1::WorkerState state;
  executor.AddTo("evil", {.bytes = 3000}, &state);
  ASSERT_EQ(state.sessions_size(), 10);
  EXPECT_EQ(state.sessions(0).use().models_size(), 1);
  EXPECT_FALSE(state.sessions(9).has_use());
  EXPECT_EQ(state.sessions(9).lease_use().bytes(), 7u);
  EXPECT_EQ(state.runs_answers_size(), 0);
  EXPECT_EQ(state.graphs_size(), 0);
  state.Clear();
  executor.AddTo("evil", {.graphs = 100}, &state);
  EXPECT_EQ(state.graphs_size(), 100);
  EXPECT_EQ(state.runs_answers_size(), 1);
  EXPECT_TRUE(state.sessions(9).has_use());
}

TEST_F(HostileSizesTest, AFloodOfBytesWaitsAndOthersAreHeard) {
  v1::FromExecutor message;
  *message.mutable_report() = Holding("evil", "e1", 1, 1);
  // Some 4 MiB, which parse fast.
  for (int i = 0; i < 8'000; ++i) {
    message.mutable_report()->add_released_lease_ids(std::string(512, 'x'));
  }
  const std::string frame = EncodeFrame(message);
  size_t sent = 0;
  int stuck = 0;
  // Until the supervisor reads no more.
  while (stuck < 100 && sent < kCoordinatorsLimit) {
    if (executor(0).unsent() == 0) {
      executor(0).SendBytes(frame);
      sent += frame.size();
    }
    const size_t before = executor(0).unsent();
    Step();
    stuck = executor(0).unsent() == before ? stuck + 1 : 0;
  }
  EXPECT_LT(sent, size_t{40} << 20);
  executor(1).Report(Holding("good", "g1", 5, 1));
  Step();
  EXPECT_EQ(
      supervisor_.Snapshot().sessions(1).lease_use().device_time().seconds(),
      5);
  // It goes on once time has passed.
  clock_.Advance(absl::Seconds(1));
  for (int i = 0; i < 10; ++i) Step();
  EXPECT_LT(executor(0).unsent(), frame.size());
  EXPECT_THAT(Ended(), IsEmpty());
}

}  // namespace
}  // namespace djinn::worker
