// Tests what a client tells operators of what it keeps, and of recoveries.
#include <memory>
#include <string>
#include <utility>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;

class LineageReportTest : public testing::Test {
 protected:
  // Opens the session with checkpoints that only the program makes.
  void Open() {
    SessionOptions options;
    options.checkpoints = true;
    options.replay_time = absl::Hours(1);
    OpenWith(std::move(options));
  }
  // Opens a session that keeps nothing, and makes no checkpoints that would
  // make up for it.
  void OpenWithoutMemory() {
    SessionOptions options;
    options.replay_memory = 1;
    options.replay_disk = 0;
    options.checkpoint_memory = 0;
    OpenWith(std::move(options));
  }
  void OpenWith(SessionOptions options) {
    options.recovers = true;
    session_ = cluster_.Open(std::move(options));
    device_ = *session_->Device(0);
  }

  void Lose() {
    cluster_.coordinator().NoteRestart();
    cluster_.worker().Restart(/*other_incarnation=*/true);
  }
  StoragePtr Uploaded(const std::string& bytes) {
    StoragePtr storage = device_->NewStorage(bytes.size());
    EXPECT_TRUE(device_->Upload(0, storage.get(), {bytes, nullptr}).ok());
    return storage;
  }
  StoragePtr Called(const StoragePtr& operand) {
    StoragePtr result = device_->NewStorage(8);
    EXPECT_TRUE(Record(*device_, 0,
                       MakeCall(1, {{operand, kReads}, {result, kCreates}}))
                    .ok());
    return result;
  }
  // Returns what the client says of the storage alone.
  v1::DeviceLineage Describe(const StoragePtr& storage) {
    const v1::LineageAnswer answer =
        cluster_.coordinator().AskLineage(storage->id());
    EXPECT_EQ(answer.devices_size(), 1);
    EXPECT_EQ(answer.devices(0).values_size(), 1);
    return answer.devices(0);
  }

  FakeCluster cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
};

TEST_F(LineageReportTest, ValuesAreUploadedReplayedOrRestored) {
  Open();
  const StoragePtr x = Uploaded("12345678");
  const StoragePtr y = Called(x);
  const StoragePtr z = Called(y);
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(Describe(x).values(0).fate(), v1::ValueLineage::UPLOADED_AGAIN);
  const v1::DeviceLineage before = Describe(z);
  EXPECT_EQ(before.mode(), "checkpoint");
  EXPECT_EQ(before.obstacle(), "");
  EXPECT_EQ(before.value_count(), 3u);
  EXPECT_EQ(before.lost_count(), 0u);
  EXPECT_EQ(before.values(0).fate(), v1::ValueLineage::REPLAYED);
  // The upload and the runs.
  EXPECT_EQ(static_cast<int>(before.values(0).messages()), before.graph_size());
  EXPECT_GE(before.graph_size(), 2);
  EXPECT_GT(before.values(0).node(), 0u);
  ASSERT_TRUE(session_->Checkpoint(absl::InfiniteDuration()).ok());
  const v1::SessionRequest report = cluster_.coordinator().WaitReport();
  EXPECT_EQ(report.checkpoint().values(), 2u);
  EXPECT_EQ(report.checkpoint().bytes(), 16u);
  const v1::DeviceLineage after = Describe(z);
  EXPECT_EQ(after.values(0).fate(), v1::ValueLineage::RESTORED);
  EXPECT_GT(after.anchored_bytes(), 0u);
  EXPECT_TRUE(session_->Close(absl::InfiniteDuration()).ok());
}

TEST_F(LineageReportTest, ARepeatedSmallRunTakesThreeHundredBytes) {
  constexpr uint64_t kRuns = 10'000;
  OpenWith({});
  const StoragePtr x = Uploaded("12345678"), y = Uploaded("87654321"),
                   z = Uploaded("........");
  for (uint64_t i = 0; i < kRuns; ++i) {
    // Lanes that take turns make runs of their own.
    ASSERT_TRUE(Record(*device_, i % 2,
                       MakeCall(1, {{x, kReads}, {y, kReads}, {z, kWrites}}))
                    .ok());
  }
  ASSERT_TRUE(device_->Synchronize().ok());
  const v1::DeviceLineage lineage = Describe(z);
  EXPECT_GE(lineage.nodes(), kRuns);
  EXPECT_LE(lineage.bytes(), 300 * lineage.nodes());
  EXPECT_TRUE(session_->Close(absl::InfiniteDuration()).ok());
}

TEST_F(LineageReportTest, DroppedChainsAreLostForAReason) {
  OpenWithoutMemory();
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(device_->Synchronize().ok());
  const v1::DeviceLineage lineage = Describe(x);
  EXPECT_EQ(lineage.values(0).fate(), v1::ValueLineage::LOST);
  EXPECT_EQ(lineage.values(0).why(), "replay_memory was full");
  EXPECT_THAT(lineage.obstacle(), HasSubstr("replay_memory"));
  EXPECT_EQ(lineage.lost_count(), 1u);
  EXPECT_TRUE(session_->Close(absl::InfiniteDuration()).ok());
}

TEST_F(LineageReportTest, UploadsThatAreNotKeptAreNamedBeforeALoss) {
  SessionOptions options;
  options.replay_memory = 20'000;
  options.replay_disk = 0;
  // No checkpoint makes up for them.
  options.checkpoint_memory = 0;
  OpenWith(std::move(options));
  const StoragePtr x = Uploaded(std::string(100'000, 'x'));
  ASSERT_TRUE(device_->Synchronize().ok());
  const v1::DeviceLineage lineage = Describe(x);
  EXPECT_EQ(lineage.values(0).fate(), v1::ValueLineage::HELD_BY_HASH);
  EXPECT_THAT(lineage.obstacle(), HasSubstr("1 upload,"));
  EXPECT_THAT(lineage.obstacle(), HasSubstr("replay_disk"));
  EXPECT_TRUE(session_->Close(absl::InfiniteDuration()).ok());
}

TEST_F(LineageReportTest, RecoveryIsReportedWhenTheReplayIsExecuted) {
  Open();
  const StoragePtr x = Uploaded("12345678");
  const StoragePtr y = Called(x);
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose();
  const v1::SessionRequest request = cluster_.coordinator().WaitReport();
  ASSERT_TRUE(request.has_recovered());
  const v1::RecoveryReport& report = request.recovered();
  EXPECT_EQ(report.kind(), v1::RecoveryReport::WORKER_LOST);
  EXPECT_EQ(report.from_worker_id(), "w0");
  EXPECT_EQ(report.to_worker_id(), "w0");
  EXPECT_FALSE(report.has_failure());
  EXPECT_GE(report.attempts(), 1u);
  EXPECT_EQ(report.replayed_nodes(), session_->statistics().messages_replayed);
  EXPECT_GE(FromProtoDuration(report.total_time()),
            FromProtoDuration(report.lease_time()) +
                FromProtoDuration(report.send_time()));
  EXPECT_TRUE(session_->Close(absl::InfiniteDuration()).ok());
}

TEST_F(LineageReportTest, FailedRecoveryIsReportedWithItsReason) {
  OpenWithoutMemory();
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose();
  const v1::SessionRequest request = cluster_.coordinator().WaitReport();
  ASSERT_TRUE(request.has_recovered());
  EXPECT_EQ(request.recovered().failure().reason(), "WORKER_LOST");
  EXPECT_THAT(request.recovered().failure().message(),
              HasSubstr("replay_memory"));
}

}  // namespace
}  // namespace djinn
