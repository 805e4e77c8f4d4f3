#include "gpu_worker/leases/lease_keeper.h"

#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/lease/testing/lease_authority.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr uint64_t kIncarnation = 7;

class LeaseKeeperTest : public testing::Test {
 protected:
  v1::SignedLease Issue(const std::string& id, const std::string& session,
                        absl::Duration valid_for = absl::Minutes(1)) {
    return authority_.Issue(LeaseAuthority::Claims(id, session, "t1"), "w0",
                            kIncarnation, valid_for);
  }
  absl::StatusOr<bool> Renew(const v1::SignedLease& signed_lease) {
    v1::DesiredState desired;
    authority_.List(signed_lease, &desired);
    keeper_.Learn(desired);
    const absl::StatusOr<v1::LeaseClaims> claims =
        keeper_.ClaimsOf(signed_lease);
    if (!claims.ok()) return claims.status();
    return keeper_.Renew(signed_lease, *claims);
  }
  std::shared_ptr<LeaseMeter> MeterOf(const std::string& lease_id) {
    return keeper_.Find(lease_id)->meter;
  }
  v1::WorkerState Report() {
    v1::WorkerState state;
    keeper_.Report(&state);
    return state;
  }

  FakeClock clock_;
  LeaseAuthority authority_;
  Traffic traffic_;
  LeaseKeeper keeper_{"w0", kIncarnation, 2, &clock_, &traffic_};
};

TEST_F(LeaseKeeperTest, RenewSaysWhetherTheLeaseIsNew) {
  const v1::SignedLease signed_lease = Issue("l1", "s1");
  EXPECT_TRUE(*Renew(signed_lease));
  EXPECT_FALSE(*Renew(Issue("l1", "s1")));
  EXPECT_TRUE(keeper_.HasSession("s1"));
  EXPECT_EQ(keeper_.FindSession("s1")->claims.lease_id(), "l1");
  EXPECT_EQ(keeper_.LeasesOf("s1"), std::vector<std::string>{"l1"});
}

TEST_F(LeaseKeeperTest, KeeperOfOneTenantRefusesTheLeasesOfOthers) {
  LeaseKeeper keeper("w0", kIncarnation, 2, &clock_, &traffic_,
                     /*one_tenant=*/true);
  const v1::SignedLease own = Issue("l1", "s1");
  const v1::SignedLease later = Issue("l2", "s2");
  const v1::SignedLease foreign = authority_.Issue(
      LeaseAuthority::Claims("l3", "s3", "t2"), "w0", kIncarnation);
  v1::DesiredState desired;
  authority_.List(own, &desired);
  keeper.Learn(desired);
  // Before it knows its tenant, it has none.
  EXPECT_EQ(
      ErrorReason(keeper.Present(own, *keeper.ClaimsOf(own), "s1", 1).status()),
      "LEASE_UNKNOWN");
  ASSERT_TRUE(keeper.Renew(own, *keeper.ClaimsOf(own)).ok());
  EXPECT_TRUE(keeper.Present(own, *keeper.ClaimsOf(own), "s1", 1).ok());
  EXPECT_TRUE(keeper.Present(later, *keeper.ClaimsOf(later), "s2", 1).ok());
  EXPECT_EQ(
      ErrorReason(
          keeper.Present(foreign, *keeper.ClaimsOf(foreign), "s3", 1).status()),
      "LEASE_UNKNOWN");
}

TEST_F(LeaseKeeperTest, UnknownKeyIsRefused) {
  const v1::SignedLease signed_lease = Issue("l1", "s1");
  EXPECT_EQ(ErrorReason(keeper_.ClaimsOf(signed_lease).status()),
            "LEASE_UNKNOWN");
  EXPECT_TRUE(Renew(signed_lease).ok());
  EXPECT_TRUE(keeper_.ClaimsOf(signed_lease).ok());
}

TEST_F(LeaseKeeperTest, ExpiredLeaseEndsOnceAndNeverComesBack) {
  const v1::SignedLease signed_lease = Issue("l1", "s1", absl::Seconds(10));
  EXPECT_TRUE(Renew(signed_lease).ok());
  EXPECT_TRUE(keeper_.EndExpired().empty());
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(keeper_.EndExpired(), std::vector<std::string>{"l1"});
  EXPECT_TRUE(keeper_.EndExpired().empty());
  EXPECT_FALSE(keeper_.HasSession("s1"));
  EXPECT_FALSE(Renew(signed_lease).ok());
}

TEST_F(LeaseKeeperTest, EndedLeaseIsReportedUntilItIsSettled) {
  EXPECT_TRUE(Renew(Issue("l1", "s1")).ok());
  std::shared_ptr<LeaseMeter> meter = MeterOf("l1");
  EXPECT_EQ(keeper_.EndSession("s1"), std::vector<std::string>{"l1"});
  meter->Add(v1::PHASE_UNSPECIFIED, absl::Milliseconds(3));
  v1::WorkerState state = Report();
  EXPECT_EQ(state.sessions_size(), 0);
  ASSERT_EQ(state.ended_leases_size(), 1);
  EXPECT_TRUE(state.ended_leases(0).measuring());
  // The session is gone, so nothing adds to the use any more.
  meter.reset();
  EXPECT_FALSE(Report().ended_leases(0).measuring());
  keeper_.Settle({"other"});
  EXPECT_EQ(Report().ended_leases_size(), 1);
  keeper_.Settle({"l1"});
  EXPECT_EQ(Report().ended_leases_size(), 0);
  EXPECT_EQ(keeper_.unbilled(), 0u);
}

TEST_F(LeaseKeeperTest, OldestOfTooManyEndedLeasesIsNotBilled) {
  for (const char* const id : {"l1", "l2", "l3"}) {
    EXPECT_TRUE(Renew(Issue(id, std::string("s-") + id)).ok());
    EXPECT_EQ(keeper_.EndLease(id), std::vector<std::string>{id});
  }
  EXPECT_EQ(keeper_.unbilled(), 1u);
  const v1::WorkerState state = Report();
  ASSERT_EQ(state.ended_leases_size(), 2);
  EXPECT_EQ(UncheckedClaims(state.ended_leases(0).lease()).lease_id(), "l2");
}

TEST_F(LeaseKeeperTest, PresentingAnEndedLeaseFails) {
  const v1::SignedLease signed_lease = Issue("l1", "s1");
  EXPECT_TRUE(Renew(signed_lease).ok());
  const v1::LeaseClaims claims = *keeper_.ClaimsOf(signed_lease);
  EXPECT_TRUE(keeper_.Present(signed_lease, claims, "s1", 1).ok());
  EXPECT_EQ(keeper_.EndLease("l1").size(), 1u);
  EXPECT_EQ(
      ErrorReason(keeper_.Present(signed_lease, claims, "s1", 1).status()),
      "LEASE_UNKNOWN");
}

}  // namespace
}  // namespace djinn::worker
