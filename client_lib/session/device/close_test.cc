// Tests the end of a session.
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(CloseTest, CloseReportsAnUnreadError) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  cluster.worker().Set(&FakeScript::fail_next_run, 0xbad);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  EXPECT_EQ(ErrorReason(session->Close(absl::Seconds(10))), "OPERATOR_FAILED");
}

TEST(CloseTest, CloseNamesUnfinishedWork) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Pause();
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  const absl::Status status = session->Close(absl::Milliseconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ErrorReason(status), "UNFINISHED_WORK");
  EXPECT_NE(status.message().find("device 0: 1 run and 0 uploads were not "
                                  "executed; writes to 1 storage are lost"),
            std::string::npos)
      << status;
  EXPECT_EQ(cluster.worker().seen().cancels, 1);
  EXPECT_EQ(ErrorReason(ReadByte(*device, 0, value)), "SESSION_CLOSED");
  EXPECT_EQ(ErrorReason(session->Device(0).status()), "SESSION_CLOSED");
  Drop(value);
}

TEST(CloseTest, CloseReportsLostWorkPerDevice) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  std::vector<StoragePtr> storages;
  std::vector<std::thread> uploads;
  const std::string bytes = Pattern(1 << 20);
  for (const int i : {0, 1}) {
    const auto device = *session->Device(i);
    const StoragePtr value = device->NewStorage(8);
    ASSERT_TRUE(ReadByte(*device, 0, value).ok());
    cluster.worker(i).Pause();
    if (i == 1) cluster.worker(i).Set(&FakeScript::ignore_cancel, true);
    for (int lane = 0; lane < 3; ++lane) {
      const StoragePtr out = device->NewStorage(8);
      ASSERT_TRUE(
          Record(*device, lane, MakeCall(1, {{value, kReads}, {out, kCreates}}))
              .ok());
      storages.push_back(out);
    }
    storages.push_back(device->NewStorage(bytes.size()));
    uploads.emplace_back([&bytes, device, large = storages.back()] {
      EXPECT_EQ(ErrorReason(device->Upload(7, large.get(), {bytes, nullptr})),
                "SESSION_CLOSED");
    });
    // Runs count as unfinished whether they were sent or not.
    cluster.worker(i).WaitWaiting(1);
  }
  const absl::Time start = absl::Now();
  const absl::Status status = session->Close(absl::Milliseconds(20));
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(2020));
  for (std::thread& upload : uploads) upload.join();
  EXPECT_EQ(ErrorReason(status), "UNFINISHED_WORK");
  for (const int i : {0, 1}) {
    EXPECT_NE(status.message().find(
                  absl::StrCat("device ", i,
                               ": 3 runs and 1 upload were not executed; "
                               "writes to 4 storages are lost")),
              std::string::npos)
        << status;
  }
}

TEST(CloseTest, AWorkerOutOfReachDoesNotHoldTheEnd) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Set(&FakeScript::break_streams, INT_MAX);
  cluster.worker().Break(absl::UnavailableError("cut"));
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  const absl::Time start = absl::Now();
  EXPECT_EQ(ErrorReason(session->Close(absl::Milliseconds(20))),
            "UNFINISHED_WORK");
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(2020));
}

TEST(CloseTest, CloseCarriesOutWhatItSealsWhileTheSenderIsAwake) {
  for (int i = 0; i < 200; ++i) {
    FakeCluster cluster;
    const auto [session, device] = cluster.OpenDevice();
    const StoragePtr value = device->NewStorage(8);
    StoragePtr large = device->NewStorage(2 << 20);
    ASSERT_TRUE(ReadByte(*device, 0, value).ok());
    ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
    // Wakes the sender, which then looks for work while the session closes.
    Drop(std::move(large));
    ASSERT_TRUE(session->Close(absl::Seconds(10)).ok());
    ASSERT_EQ(cluster.worker().seen().runs.size(), 1u);
  }
}

TEST(CloseTest, CloseDoesNotWaitForALeaseThatDoesNotCome) {
  FakeCluster cluster;
  cluster.coordinator().HoldLeases();
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  absl::Status read;
  std::thread reader([&] { read = ReadByte(*device, 0, value); });
  cluster.coordinator().WaitForLeaseRequest();
  EXPECT_EQ(ErrorReason(session->Close(absl::Milliseconds(20))),
            "UNFINISHED_WORK");
  reader.join();
  EXPECT_EQ(ErrorReason(read), "SESSION_CLOSED");
}

TEST(CloseTest, StoragesOutliveTheirSession) {
  FakeCluster cluster;
  StoragePtr value;
  {
    const auto session = cluster.Open();
    value = (*session->Device(0))->NewStorage(8);
    ASSERT_TRUE(
        Record(*value->device(), 0, MakeCall(1, {{value, kWrites}})).ok());
  }
  EXPECT_EQ(ErrorReason(ReadByte(*value->device(), 0, value)),
            "SESSION_CLOSED");
  EXPECT_FALSE(value->dead());
  Drop(std::move(value));
}

// Comes last, because afterwards no other test may open a session in a child.
TEST(CloseTest, AForkedChildRefusesAndCleansUpNothing) {
  FakeCluster cluster;
  auto session = cluster.Open();
  auto device = *session->Device(0);
  StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    device->MarkDead(value.get());
    const bool refused =
        ErrorReason(ReadByte(*device, 0, value)) == "AFTER_FORK" &&
        ErrorReason(Record(*device, 0, MakeCall(1, {{value, kReads}}))) ==
            "AFTER_FORK" &&
        ErrorReason(session->Close(absl::Seconds(1))) == "AFTER_FORK";
    // The last destructor waits for no thread of the parent.
    value = StoragePtr();
    device.reset();
    session.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(ReadByte(*device, 0, value).ok());
}

}  // namespace
}  // namespace djinn
