// Tests what the executor tells the gate about whose messages it executes.
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "gpu_worker/executor/turn_gate.h"
#include "gpu_worker/testing/batch_fixture.h"
#include "gpu_worker/testing/node_hook.h"

namespace djinn::worker {
namespace {

// Is always open, and writes down what it is told.
class NotingGate : public TurnGate {
 public:
  bool TryEnter() override { return true; }
  void Enter() override {}
  void Yield() override {}
  void Leave() override {}
  void Cancel() override {}
  void NoteServed(absl::Span<const absl::string_view> lease_ids) override {
    MutexLock lock(&mu_);
    absl::StrAppend(&notes_, absl::StrJoin(lease_ids, "+"), ";");
  }
  // Returns whether it was told this, one after the other.
  bool Has(absl::string_view notes) const {
    MutexLock lock(&mu_);
    return absl::StrContains(notes_, notes);
  }

 private:
  mutable Mutex mu_;
  std::string notes_ ABSL_GUARDED_BY(mu_);
};

// A base class, so that it outlives the worker of the other one.
struct WithGate {
  NotingGate gate_;
};

class ServedBatchTest : public WithGate, public BatchTest {
 protected:
  ServedBatchTest() { Start({.gate = &gate_}); }
};

TEST_F(ServedBatchTest, AllLeasesOfABatchAreServed) {
  UploadWeight(Add("s0", "t1", 0));
  UploadWeight(Add("s1", "t1", 1));
  Plug();
  for (const auto& client : clients_) Run(client.get());
  bool together = false;
  at_joined_ = [&] {
    together =
        gate_.Has(";lease-s0+lease-s1;") || gate_.Has(";lease-s1+lease-s0;");
  };
  ReleaseWith(3);
  Result(clients_[0].get());
  Result(clients_[1].get());
  EXPECT_TRUE(together);
}

class ServedPreemptionTest : public WithGate, public NodeHookTest {
 protected:
  ServedPreemptionTest() { Start({.gate = &gate_}); }
};

TEST_F(ServedPreemptionTest, APreemptedLeaseIsServedAgainAfterTheOther) {
  v1::LeaseClaims lease = LeaseWithDeadline("batch", "t1", {});
  lease.mutable_urgency()->set_priority_class(v1::PRIORITY_CLASS_BATCH);
  const std::unique_ptr<TestClient> batch = OpenToAdd(lease);
  lease = LeaseWithDeadline("quick", "t2", {});
  lease.mutable_urgency()->set_priority_class(v1::PRIORITY_CLASS_INTERACTIVE);
  const std::unique_ptr<TestClient> quick = OpenToAdd(lease);
  FakeGraph fill;
  fill.FillInPlace(fill.Bound(), 1);
  quick->Define(1, fill.get());
  EXPECT_EQ(quick->Read(kOne, 1), Floats{1});
  Before(2, [&] {
    const uint32_t before = core_->Snapshot().queued_runs();
    quick->Run(1, {kSum}, {7});
    EXPECT_TRUE(WaitReceived(before + 1, quick.get()));
  });
  batch->Define(2, Long(6));
  batch->Run(2, {kSum, kOne});
  EXPECT_EQ(batch->Read(kSum, 1), Floats{6});
  EXPECT_EQ(quick->Read(kSum, 1), Floats{7});
  EXPECT_TRUE(WaitUntil(
      [&] { return gate_.Has(";lease-batch;lease-quick;;lease-batch;;"); }));
}

}  // namespace
}  // namespace djinn::worker
