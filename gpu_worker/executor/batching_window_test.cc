// Tests runs that wait for other runs to share their products.
#include <string>
#include <vector>

#include "common/base/proto_duration.h"
#include "gpu_worker/testing/batch_fixture.h"

namespace djinn::worker {
namespace {

class BatchingWindowTest : public BatchTest {
 protected:
  // Charges the client, so that of two clients that wait the other one is next.
  void UseMore(TestClient* client) {
    PlugAgain();
    client->set_mode(v1::EXECUTION_MODE_STRICT);
    client->Create(50, 8);
    client->Define(9, Fill());
    client->Run(9, {50}, {0});
    ReleaseWith(2);
    client->Read(50, 2);
    client->set_mode(v1::EXECUTION_MODE_FAST);
  }
  bool WaitForOrder(const std::string& order) {
    return WaitUntil([&] { return Order() == order; });
  }
  std::string Waits() {
    const std::string text = Metrics();
    const std::string name = "\ndjinn_batch_wait_seconds_count ";
    const size_t at = text.find(name) + name.size();
    return text.substr(at, text.find('\n', at) - at);
  }
};

TEST_F(BatchingWindowTest, RegularSessionIsAwaited) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  EXPECT_EQ(Waits(), "0");
  const absl::Duration used_before = Used("a");
  const uint64_t read_a = RunAlone(a);
  clock_.Advance(absl::Milliseconds(100));
  const uint64_t read_b = RunNext(b);
  EXPECT_EQ(Wait(a, read_a), (Floats{0, 3}));
  EXPECT_EQ(Wait(b, read_b), (Floats{0, 3}));
  EXPECT_EQ(Order(), "Jaa");
  EXPECT_EQ(Waits(), "1");
  // The wait is charged to no session.
  a->Meter();
  b->Meter();
  EXPECT_EQ(Used("a") - used_before, absl::Seconds(3));
  EXPECT_EQ(Used("a") + Used("b") + Used("plug"), Busy());
}

TEST_F(BatchingWindowTest, AbsentSessionIsAwaitedOnce) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  uint64_t read = RunAlone(a);
  clock_.Advance(kPause / 2);
  EXPECT_EQ(Wait(a, read), (Floats{0, 3}));
  EXPECT_EQ(Waits(), "1");
  // The clock stands still from here on.
  for (int i = 0; i < 3; ++i) {
    read = RunNext(a);
    EXPECT_EQ(Wait(a, read), (Floats{0, 3}));
  }
  EXPECT_EQ(Order(), "sasasasa");
  EXPECT_EQ(Waits(), "1");
}

TEST_F(BatchingWindowTest, WindowEndsWhenTheSessionDoesSomethingElse) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  UseMore(a);
  GoRound({a, b});
  const uint64_t read = RunAlone(a);
  clock_.Advance(kPause / 5);
  // The read's turn is over before the run is considered.
  for (int i = 0; i < 4; ++i) {
    b->Read(kRows, 2);
    EXPECT_EQ(Order(), i == 0 ? "" : "sa");
    clock_.Advance(kPause);
    EXPECT_TRUE(WaitForOrder("sa"));
  }
  EXPECT_EQ(Wait(a, read), (Floats{0, 3}));
}

TEST_F(BatchingWindowTest, LoneSessionDoesNotWait) {
  TestClient* const a = AddWithWeight("a", "t1");
  GoRound({a});
  EXPECT_EQ(Wait(a, RunNext(a)), (Floats{0, 3}));
  EXPECT_EQ(Waits(), "0");
}

TEST_F(BatchingWindowTest, SessionSeenOnceIsNotAwaited) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a}, 2);
  GoRound({a, b}, 2);
  EXPECT_EQ(Wait(a, RunNext(a)), (Floats{0, 3}));
  EXPECT_EQ(Waits(), "0");
}

TEST_F(BatchingWindowTest, RunWithADeadlineDoesNotWait) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  v1::LeaseClaims hurried = Lease("a", "t1");
  LetKeepWeights(&hurried);
  *hurried.mutable_urgency()->mutable_run_deadline() =
      ToProtoDuration(absl::Hours(1));
  Grant(hurried, 100'000);
  EXPECT_EQ(Wait(a, RunNext(a)), (Floats{0, 3}));
  EXPECT_EQ(Order(), "sa");
  EXPECT_EQ(Waits(), "0");
}

TEST_F(BatchingWindowTest, WindowClosesWhenAnotherRunWaits) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  TestClient* const other = Add("c", "t2", 2);
  other->set_mode(v1::EXECUTION_MODE_STRICT);
  other->Define(9, Fill());
  GoRound({a, b});
  const uint64_t read = RunAlone(a);
  other->Run(9, {kRows}, {1});
  // The run that waits is not delayed any longer.
  EXPECT_EQ(Wait(a, read), (Floats{0, 3}));
  EXPECT_EQ(other->Read(kRows, 2), (Floats{1, 1}));
}

TEST_F(BatchingWindowTest, SessionThatMayNotBatchIsNotAwaited) {
  Share({"t1", "t2"});
  Batch({"t1"});
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t2");
  GoRound({a, b});
  EXPECT_EQ(Wait(a, RunNext(a)), (Floats{0, 3}));
  EXPECT_EQ(Waits(), "0");
}

TEST_F(BatchingWindowTest, TenantsThatShareWaitForOneAnother) {
  Share({"t1", "t2"});
  Batch({"t1", "t2"});
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t2");
  GoRound({a, b});
  const uint64_t read_a = RunAlone(a);
  const uint64_t read_b = RunNext(b);
  EXPECT_EQ(Wait(a, read_a), (Floats{0, 3}));
  EXPECT_EQ(Wait(b, read_b), (Floats{0, 3}));
  EXPECT_EQ(Order(), "Jaa");
}

TEST_F(BatchingWindowTest, LowerPriorityIsNotWaitedFor) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  v1::LeaseClaims patient = Lease("b", "t1");
  LetKeepWeights(&patient);
  patient.mutable_urgency()->set_priority_class(v1::PRIORITY_CLASS_BATCH);
  Grant(patient, 100'000);
  EXPECT_EQ(Wait(a, RunNext(a)), (Floats{0, 3}));
  EXPECT_EQ(Waits(), "0");
}

TEST_F(BatchingWindowTest, SessionWithoutCreditIsNotAwaited) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  v1::LeaseClaims poor = Lease("b", "t1");
  LetKeepWeights(&poor);
  *poor.mutable_credits()->mutable_device_time() =
      ToProtoDuration(absl::ZeroDuration());
  Grant(poor, 100'000);
  EXPECT_EQ(Wait(a, RunNext(a)), (Floats{0, 3}));
  EXPECT_EQ(Waits(), "0");
}

TEST_F(BatchingWindowTest, DroppedSessionIsNotAwaited) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  const uint64_t read = RunAlone(a);
  v1::DesiredState desired;
  desired.add_drop_session_ids("b");
  core_->Apply(desired);
  EXPECT_EQ(ErrorReason(b->WaitClosed()), "SESSION_DROPPED");
  EXPECT_EQ(Wait(a, read), (Floats{0, 3}));
  EXPECT_EQ(Order(), "sa");
}

TEST_F(BatchingWindowTest, ShutdownClosesTheWindow) {
  TestClient* const a = AddWithWeight("a", "t1");
  TestClient* const b = AddWithWeight("b", "t1");
  GoRound({a, b});
  RunAlone(a);
  core_->Shutdown();
  EXPECT_EQ(ErrorReason(a->WaitClosed()), "DRAINING");
}

}  // namespace
}  // namespace djinn::worker
