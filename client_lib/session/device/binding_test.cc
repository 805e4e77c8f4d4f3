// Tests devices whose first worker is not reached, refuses the session, or
// loses the lease before it answers.
#include <string>
#include <thread>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Uses the device's first value.
absl::Status Use(VirtualDevice& device) {
  return ReadByte(device, 0, device.NewStorage(8));
}

TEST(BindingTest, AWorkerThatRefusesTheFirstDialIsReplacedAtOnce) {
  FakeClock clock;  // no time passes
  FakeCluster cluster;
  cluster.coordinator().PlaceElsewhere();
  cluster.worker(0).Set(&FakeScript::break_streams, 1);
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  EXPECT_TRUE(Use(*device).ok());
  EXPECT_EQ(device->Placement()->worker_id, "w1");
  EXPECT_THAT(cluster.coordinator().returned_leases(),
              ElementsAre("lease-0 unreachable"));
  EXPECT_TRUE(session->RootErrors().empty());
  EXPECT_TRUE(session->Close(absl::Seconds(5)).ok());
}

TEST(BindingTest, ASilentWorkerIsReplaced) {
  FakeClock clock;
  FakeCluster cluster;
  cluster.coordinator().PlaceElsewhere();
  cluster.worker(0).Set(&FakeScript::silent, true);
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  WhileTimePasses(&clock, [&] { EXPECT_TRUE(Use(*device).ok()); });
  EXPECT_EQ(device->Placement()->worker_id, "w1");
  // One attempt was enough.
  EXPECT_THAT(cluster.coordinator().returned_leases(),
              ElementsAre("lease-0 unreachable"));
}

TEST(BindingTest, AWorkerWithAnothersAddressIsReplaced) {
  FakeCluster cluster;
  cluster.coordinator().PlaceElsewhere();
  cluster.worker(0).Set(&FakeScript::wrong_id, true);
  const auto [session, device] = cluster.OpenDevice();
  EXPECT_TRUE(Use(*device).ok());
  EXPECT_EQ(device->Placement()->worker_id, "w1");
}

TEST(BindingTest, AWorkerThatRestartedSinceTheGrantIsReplaced) {
  FakeCluster cluster;
  cluster.coordinator().PlaceElsewhere();
  cluster.worker(0).Restart(/*other_incarnation=*/true);
  const auto [session, device] = cluster.OpenDevice();
  EXPECT_TRUE(Use(*device).ok());
  EXPECT_EQ(device->Placement()->worker_id, "w1");
}

TEST(BindingTest, ALeaseThatEndsBeforeItsGrantArrivesIsReplaced) {
  FakeCluster cluster;
  cluster.coordinator().EndNextLease("WORKER_RESTARTED");
  const auto [session, device] = cluster.OpenDevice();
  EXPECT_TRUE(Use(*device).ok());
  EXPECT_THAT(cluster.coordinator().lease_requests(), SizeIs(2));
}

TEST(BindingTest, ALeaseThatEndsBeforeTheWorkerAnswersIsReplaced) {
  FakeClock clock;
  FakeCluster cluster;
  cluster.coordinator().PlaceElsewhere();
  cluster.worker(0).Set(&FakeScript::silent, true);
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  absl::Status used;
  std::thread program([&] { used = Use(*device); });
  cluster.coordinator().WaitForLeaseRequest();
  cluster.coordinator().EndLease("lease-0", "WORKER_LOST");
  program.join();
  EXPECT_TRUE(used.ok()) << used;
}

TEST(BindingTest, TheOnlyWorkerIsTriedAgainUntilItAnswers) {
  FakeClock clock;
  FakeCluster cluster;
  cluster.worker(0).Set(&FakeScript::break_streams, 3);
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  WhileTimePasses(&clock, [&] { EXPECT_TRUE(Use(*device).ok()); });
  EXPECT_THAT(cluster.coordinator().returned_leases(), SizeIs(3));
}

TEST(BindingTest, TheOnlyWorkerIsGivenUpAfterTheConnectTimeout) {
  FakeClock clock;
  FakeCluster cluster;
  cluster.worker(0).Set(&FakeScript::silent, true);
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  absl::Status lost;
  WhileTimePasses(&clock, [&] { lost = Use(*device); });
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST");
  EXPECT_THAT(std::string(lost.message()), HasSubstr("tried again for 30s"));
  EXPECT_THAT(cluster.coordinator().returned_leases(),
              Each("lease-0 unreachable"));
}

TEST(BindingTest, WithoutAnotherWorkerTheLossOfTheFirstOneIsTheError) {
  FakeClock clock;
  FakeCluster cluster;
  cluster.worker(0).Set(&FakeScript::break_streams, 1);
  cluster.coordinator().RefuseAfterReturn(MakeError(
      absl::StatusCode::kUnavailable, "NO_WORKER", "no worker has joined"));
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  absl::Status lost;
  WhileTimePasses(&clock, [&] { lost = Use(*device); });
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST");
  EXPECT_EQ(ErrorMetadataValue(lost, "worker"), "w0");
}

}  // namespace
}  // namespace djinn
