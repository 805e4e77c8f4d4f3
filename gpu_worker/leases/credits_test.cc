// Tests leases whose credit runs out, grace periods, and the reports of use.
#include "common/base/proto_duration.h"
#include "common/lease/lease_verifier.h"
#include "common/metrics/exposition.h"
#include "gmock/gmock.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

class CreditsTest : public WorkerCoreTest {
 protected:
  // Each node takes a second of the fake clock.
  CreditsTest() {
    device_.SetExecuteHook([this](const std::string&) {
      clock_.Advance(absl::Seconds(1));
      return absl::OkStatus();
    });
  }
  v1::LeaseClaims WithTime(int seconds) {
    v1::LeaseClaims lease = Lease("s1", "t1");
    lease.mutable_credits()->mutable_device_time()->set_seconds(seconds);
    return lease;
  }
  bool Waits() { return core_->Snapshot().sessions(0).out_of_credit(); }
  absl::Duration Used() {
    return FromProtoDuration(
        core_->Snapshot().sessions(0).lease_use().device_time());
  }
};

TEST_F(CreditsTest, RunsWaitForCreditAndGoOnWithIt) {
  Grant(WithTime(2), 1000);
  std::unique_ptr<TestClient> client = Connect(HelloFor("s1"));
  client->Create(1, 8);
  client->Define(1, Fill());
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1}, {1})));
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1}, {2})));
  // The answer may be sent before the turn is charged.
  EXPECT_TRUE(WaitUntil([&] { return Used() == absl::Seconds(2); }));
  const uint64_t third = client->Run(1, {1}, {3});
  EXPECT_TRUE(WaitUntil([&] { return Waits(); }));
  EXPECT_EQ(core_->Snapshot().queued_runs(), 1u);
  EXPECT_EQ(Used(), absl::Seconds(2));
  // The same credit once more does not help, more credit does.
  Grant(WithTime(2), 1000);
  EXPECT_TRUE(Waits());
  EXPECT_EQ(core_->Snapshot().queued_runs(), 1u);
  Grant(WithTime(4), 1000);
  EXPECT_TRUE(client->WaitCompleted(third));
  EXPECT_EQ(client->Read(1, 2), (Floats{3, 3}));
  EXPECT_TRUE(WaitUntil([&] { return Used() == absl::Seconds(3); }));
}

TEST_F(CreditsTest, OthersDoNotWait) {
  Grant(WithTime(0), 1000);
  std::unique_ptr<TestClient> poor = Connect(HelloFor("s1"));
  poor->Create(1, 8);
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 8)));
  EXPECT_TRUE(WaitUntil([&] { return Waits(); }));
  // Unlimited credit is credit.
  Grant(Lease("s1", "t1"), 1000);
  EXPECT_TRUE(poor->WaitCompleted(1));
  EXPECT_TRUE(WaitUntil([&] { return !Waits(); }));
}

TEST_F(CreditsTest, BytesCostCredit) {
  v1::LeaseClaims lease = Lease("s1", "t1");
  lease.mutable_credits()->set_bytes(1000);
  Grant(lease, 1000);
  std::unique_ptr<TestClient> client = Connect(HelloFor("s1"));
  client->InstallTransfer(1, 1, std::string(3000, 'x'));
  client->WaitDecision(1);
  client->SendBytes(1, std::string(3000, 'x'));
  client->Create(2, 8);
  EXPECT_TRUE(WaitUntil([&] { return Waits(); }));
  lease.mutable_credits()->set_bytes(100000);
  Grant(lease, 1000);
  EXPECT_TRUE(client->WaitCompleted(2));
  EXPECT_GE(core_->Snapshot().sessions(0).lease_use().bytes(), 3000u);
}

TEST_F(CreditsTest, AClientThatGivesUpNeedsNoCredit) {
  Grant(WithTime(0), 1000);
  std::unique_ptr<TestClient> client = Connect(HelloFor("s1"));
  client->Create(1, 8);
  EXPECT_TRUE(WaitUntil([&] { return Waits(); }));
  client->SendCancel();
  client->WaitFor(
      [](const v1::ControlResponse& r) { return r.has_cancelled(); });
}

TEST_F(CreditsTest, TheEndIsReportedUntilItIsSettled) {
  Grant(Lease("s1", "t1"), 1000);
  std::unique_ptr<TestClient> client = Connect(HelloFor("s1"));
  client->Create(1, 8);
  client->Define(1, Fill());
  EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1}, {1})));
  v1::DesiredState desired;
  desired.add_drop_session_ids("s1");
  core_->Apply(desired);
  EXPECT_FALSE(client->WaitClosed().ok());
  EXPECT_TRUE(WaitUntil([&] {
    const v1::WorkerState state = core_->Snapshot();
    return state.ended_leases_size() == 1 && !state.ended_leases(0).measuring();
  }));
  const v1::EndedLease ended = core_->Snapshot().ended_leases(0);
  EXPECT_EQ(UncheckedClaims(ended.lease()).lease_id(), "lease-s1");
  EXPECT_EQ(ended.use().device_time().seconds(), 1);
  desired.Clear();
  desired.add_settled_lease_ids("lease-s1");
  core_->Apply(desired);
  EXPECT_EQ(core_->Snapshot().ended_leases_size(), 0);
  // A settled lease must not be used again.
  EXPECT_EQ(Refusal(HelloFor("s1")), "LEASE_UNKNOWN");
}

TEST_F(CreditsTest, TheOldestOfTooManyEndsIsDroppedAndCounted) {
  WorkerCoreOptions options;
  options.max_ended_leases = 2;
  Start(options);
  for (const char* session : {"s1", "s2", "s3"}) {
    EXPECT_THAT(Metrics(),
                testing::HasSubstr("\ndjinn_worker_unbilled_leases_total 0\n"));
    Grant(Lease(session, "t1"), 1000);
    v1::DesiredState desired;
    desired.add_drop_session_ids(session);
    core_->Apply(desired);
  }
  EXPECT_THAT(Metrics(),
              testing::HasSubstr("\ndjinn_worker_unbilled_leases_total 1\n"));
  const auto ended = [&] {
    std::vector<std::string> ids;
    const v1::WorkerState state = core_->Snapshot();
    for (const v1::EndedLease& lease : state.ended_leases()) {
      ids.push_back(UncheckedClaims(lease.lease()).lease_id());
    }
    return ids;
  };
  EXPECT_THAT(ended(), testing::ElementsAre("lease-s2", "lease-s3"));
  v1::DesiredState desired;
  core_->Apply(desired);
  desired.add_settled_lease_ids("lease-s2");
  core_->Apply(desired);
  EXPECT_THAT(ended(), testing::ElementsAre("lease-s3"));
}

TEST_F(CreditsTest, InTheGracePeriodSessionsGoOnAndNoneBegins) {
  v1::LeaseClaims lease = Lease("s1", "t1");
  lease.mutable_grace()->set_seconds(100);
  Grant(lease, 60);
  v1::LeaseClaims idle = Lease("s2", "t1");
  idle.mutable_grace()->set_seconds(100);
  Grant(idle, 60);
  std::unique_ptr<TestClient> client = Connect(HelloFor("s1"));
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
  clock_.Advance(absl::Seconds(70));
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 8)));
  EXPECT_EQ(Refusal(HelloFor("s2")), "LEASE_EXPIRED");
  Break(client.get());
  Resume(client.get());
  EXPECT_TRUE(client->WaitCompleted(client->Create(3, 8)));
  clock_.Advance(absl::Seconds(95));
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "LEASE_EXPIRED");
}

TEST_F(CreditsTest, ForgedLeasesAreRefused) {
  Grant(Lease("s1", "t1"), 1000);
  const LeaseSigner stranger =
      LeaseSigner::FromSeed(std::string(32, 'x')).value();
  v1::SignedLease lease = *ParseLeaseToken(tokens_["s1"]);
  v1::LeaseClaims claims = UncheckedClaims(lease);
  claims.set_lease_id("mine");
  claims.set_session_id("s9");
  v1::SignedLease forged = stranger.Sign(claims);
  const auto hello_with = [&](const v1::SignedLease& token) {
    v1::ClientHello hello = HelloFor("s9");
    hello.set_lease_token(token.SerializeAsString());
    return hello;
  };
  const auto refusal = [&](const v1::SignedLease& token) {
    return Refusal(hello_with(token));
  };
  EXPECT_EQ(refusal(forged), "LEASE_UNKNOWN");
  forged.set_key_id(lease.key_id());
  EXPECT_EQ(refusal(forged), "LEASE_UNKNOWN");
  forged.set_signature(lease.signature());
  EXPECT_EQ(refusal(forged), "LEASE_UNKNOWN");
  // A worker to which the coordinator announced no such lease verifies it, too.
  std::unique_ptr<TestClient> client =
      Connect(hello_with(authority_.signer().Sign(claims)));
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
}

TEST_F(CreditsTest, ARetiredKeyEndsNoSession) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8)));
  v1::DesiredState desired;
  desired.add_retired_lease_key_ids(authority_.signer().id());
  core_->Apply(desired);
  Break(client.get());
  Resume(client.get());
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 8)));
  // No session begins with a retired key.
  const v1::SignedLease late = authority_.Issue(
      Lease("s2", "t1"), "w0", core_->incarnation(), absl::Hours(1));
  v1::ClientHello hello = HelloFor("s2");
  hello.set_lease_token(late.SerializeAsString());
  EXPECT_EQ(Refusal(hello), "LEASE_UNKNOWN");
}

}  // namespace
}  // namespace djinn::worker
