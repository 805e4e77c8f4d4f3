// Tests clients whose stream is alive and that acknowledge nothing: the replies
// kept for them are bounded, in bytes and in time.
#include <memory>

#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class SilentClientTest : public WorkerCoreTest {
 protected:
  std::unique_ptr<TestClient> OpenSilent() {
    Grant(Lease("s1", "t1"), 1000);
    std::unique_ptr<TestClient> client = Connect(HelloFor("s1"));
    client->KeepSilent();
    return client;
  }
  static srg::TensorView Bytes(uint64_t count) {
    srg::TensorView view;
    view.data_type = srg::DataType::kUint8;
    view.sizes = {static_cast<int64_t>(count)};
    view.strides = {1};
    return view;
  }
  // Advances the clock and waits for housekeeping, which releases unused device
  // memory after it has checked deadlines.
  void PassTime(absl::Duration time) {
    const uint64_t tidied = device_.tidied();
    clock_.Advance(time);
    EXPECT_TRUE(WaitUntil([&] { return device_.tidied() > tidied; }));
  }
};

TEST_F(SilentClientTest, AFullOutboxThatStandsStillEndsTheSession) {
  std::unique_ptr<TestClient> client = OpenSilent();
  client->Create(1, 8 * kMiB);
  client->SendRead(1, Bytes(8 * kMiB), 7);
  client->WaitBulk(7, 8 * kMiB);
  PassTime(absl::Seconds(50));
  EXPECT_EQ(core_->Snapshot().sessions_size(), 1);
  clock_.Advance(absl::Seconds(11));
  const absl::Status status = client->WaitClosed();
  EXPECT_EQ(ErrorReason(status), "ACKNOWLEDGE_TIMEOUT");
  EXPECT_NE(status.message().find("for 1m"), std::string::npos) << status;
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(SilentClientTest, EachAcknowledgementGivesTime) {
  std::unique_ptr<TestClient> client = OpenSilent();
  client->Create(1, 8 * kMiB);
  client->SendRead(1, Bytes(6 * kMiB), 7);
  client->SendRead(1, Bytes(8 * kMiB), 8);
  client->WaitBulk(8, 8 * kMiB);
  PassTime(absl::Seconds(50));
  v1::ControlRequest first;
  first.set_acknowledged_reply(1);
  client->SendAny(std::move(first));
  // The worker handles this message after the acknowledgement.
  client->Create(2, 8);
  EXPECT_TRUE(WaitUntil(
      [&] { return core_->Snapshot().sessions(0).use().outstanding() == 1; }));
  PassTime(absl::Seconds(50));
  client->Acknowledge();
  EXPECT_TRUE(client->WaitCompleted(4));
}

TEST_F(SilentClientTest, ClientBelowTheBoundIsNeverSilent) {
  std::unique_ptr<TestClient> client = OpenSilent();
  client->Create(1, 2 * kMiB);
  client->SendRead(1, Bytes(2 * kMiB), 7);
  client->WaitBulk(7, 2 * kMiB);
  PassTime(absl::Seconds(500));
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 8)));
}

}  // namespace
}  // namespace djinn::worker
