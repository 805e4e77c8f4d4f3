#include "gpu_worker/leases/lease_table.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/lease/lease_verifier.h"
#include "common/lease/testing/lease_authority.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr uint64_t kIncarnation = 7;

class LeaseTableTest : public testing::Test {
 protected:
  static v1::LeaseClaims Claims(const std::string& id = "lease",
                                const std::string& session = "s1") {
    return LeaseAuthority::Claims(id, session, "t1");
  }
  v1::SignedLease Issue(const v1::LeaseClaims& claims) {
    return authority_.Issue(claims, "w0", kIncarnation, absl::Minutes(1));
  }
  absl::Status Renew(const v1::SignedLease& signed_lease) {
    return table_.Renew(signed_lease, UncheckedClaims(signed_lease), now_);
  }
  std::string Refusal(const v1::SignedLease& signed_lease,
                      const std::string& session = "s1", uint64_t epoch = 1) {
    return ErrorReason(table_
                           .Present(signed_lease, UncheckedClaims(signed_lease),
                                    session, epoch, now_)
                           .status());
  }
  void Advance(absl::Duration by) {
    now_.monotonic += by;
    now_.wall += by;
  }

  LeaseAuthority authority_;
  Traffic traffic_;
  LeaseTable table_{"w0", kIncarnation, &traffic_};
  LeaseTime now_ = {absl::Seconds(5), absl::FromUnixSeconds(1'800'000'000)};
};

TEST_F(LeaseTableTest, ListedLeaseMayBePresentedInAnyRevision) {
  const v1::SignedLease first = Issue(Claims());
  const v1::SignedLease second = Issue(Claims());
  EXPECT_TRUE(Renew(first).ok());
  EXPECT_TRUE(Renew(second).ok());
  EXPECT_EQ(Refusal(first), "");
  EXPECT_EQ(Refusal(second), "");
  EXPECT_TRUE(table_.Has(second, UncheckedClaims(second)));
  // The client presented this revision before the last one.
  EXPECT_FALSE(table_.Has(first, UncheckedClaims(first)));
  // The coordinator's stream cannot go back to it either.
  EXPECT_EQ(ErrorReason(Renew(first)), "OLD_REVISION");
  EXPECT_EQ(table_.all().size(), 1u);
}

TEST_F(LeaseTableTest, UnlistedLeaseIsValidUntilItExpires) {
  EXPECT_EQ(Refusal(Issue(Claims())), "");
  EXPECT_TRUE(table_.HasSession("s1"));
  Advance(absl::Minutes(1) - absl::Nanoseconds(1));
  EXPECT_TRUE(table_.TakeExpired(now_).empty());
  Advance(absl::Nanoseconds(1));
  EXPECT_EQ(table_.TakeExpired(now_).size(), 1u);
}

TEST_F(LeaseTableTest, OneThatEndedStaysSoWhenTheClockIsSetBack) {
  const v1::SignedLease lease = Issue(Claims());
  ASSERT_TRUE(Renew(lease).ok());
  ASSERT_EQ(table_.TakeSession("s1").size(), 1u);
  LeaseTime ahead = now_;
  ahead.wall += absl::Hours(24);
  EXPECT_TRUE(table_.TakeExpired(ahead).empty());
  EXPECT_EQ(Refusal(lease), "LEASE_UNKNOWN");
}

TEST_F(LeaseTableTest, ReplayedElsewhereItIsRefused) {
  const v1::SignedLease lease = Issue(Claims());
  EXPECT_EQ(Refusal(lease, "s2"), "LEASE_UNKNOWN");
  EXPECT_EQ(Refusal(authority_.Issue(Claims(), "w1", kIncarnation)),
            "LEASE_UNKNOWN");
  EXPECT_EQ(Refusal(authority_.Issue(Claims(), "w0", kIncarnation + 1)),
            "WRONG_INCARNATION");
  EXPECT_EQ(Refusal(lease, "s1", 2), "STALE_EPOCH");
  EXPECT_TRUE(table_.all().empty());
  // Another tenant, session, epoch or device must not use the same id.
  ASSERT_TRUE(Renew(lease).ok());
  v1::LeaseClaims other = Claims();
  other.set_tenant("t2");
  EXPECT_EQ(Refusal(Issue(other)), "LEASE_UNKNOWN");
  EXPECT_EQ(ErrorReason(Renew(Issue(other))), "OLD_REVISION");
  other = Claims();
  other.set_virtual_device(1);
  EXPECT_EQ(Refusal(Issue(other)), "LEASE_UNKNOWN");
}

TEST_F(LeaseTableTest, AnOlderEpochIsStaleOnceANewerOneIsHere) {
  const v1::SignedLease old = Issue(Claims("old"));
  ASSERT_TRUE(Renew(old).ok());
  v1::LeaseClaims newer = Claims("new");
  newer.set_session_epoch(2);
  ASSERT_TRUE(Renew(Issue(newer)).ok());
  EXPECT_EQ(Refusal(old), "STALE_EPOCH");
}

TEST_F(LeaseTableTest, ListingRenewsUpToTheTimeThatTheRevisionNames) {
  v1::LeaseClaims claims = Claims();
  claims.mutable_grace()->set_seconds(30);
  claims.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(now_.wall) +
                                            100);
  const v1::SignedLease lease = Issue(claims);
  ASSERT_TRUE(Renew(lease).ok());
  const Lease* found = table_.Find("lease");
  EXPECT_EQ(found->in_force, now_.monotonic + absl::Seconds(60));
  EXPECT_EQ(found->ends, now_.monotonic + absl::Seconds(90));
  Advance(absl::Seconds(50));
  ASSERT_TRUE(Renew(lease).ok());
  found = table_.Find("lease");
  EXPECT_EQ(found->in_force, now_.monotonic + absl::Seconds(50));
  EXPECT_EQ(found->ends, now_.monotonic + absl::Seconds(50));
  // Only the monotonic clock counts here, because a wall clock may be late.
  now_.monotonic += absl::Seconds(50);
  EXPECT_EQ(table_.TakeExpired(now_).size(), 1u);
}

TEST_F(LeaseTableTest, AnExpiredLeaseIsRefused) {
  v1::LeaseClaims claims = Claims();
  claims.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(now_.wall));
  EXPECT_EQ(Refusal(Issue(claims)), "LEASE_EXPIRED");
  EXPECT_EQ(ErrorReason(Renew(Issue(claims))), "LEASE_EXPIRED");
  claims.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(now_.wall) + 1);
  EXPECT_EQ(Refusal(Issue(claims)), "");
}

TEST_F(LeaseTableTest, AnEndedLeaseNeverComesBack) {
  const v1::SignedLease dropped = Issue(Claims("dropped"));
  const v1::SignedLease expired = Issue(Claims("expired", "s2"));
  ASSERT_TRUE(Renew(dropped).ok());
  ASSERT_TRUE(Renew(expired).ok());
  EXPECT_EQ(table_.TakeSession("s1").size(), 1u);
  EXPECT_EQ(Refusal(dropped), "LEASE_UNKNOWN");
  EXPECT_EQ(Refusal(Issue(Claims("dropped"))), "LEASE_UNKNOWN");
  Advance(absl::Hours(1));
  EXPECT_EQ(table_.TakeExpired(now_).size(), 1u);
  EXPECT_EQ(Refusal(expired, "s2"), "LEASE_UNKNOWN");
  EXPECT_EQ(ErrorReason(Renew(expired)), "LEASE_UNKNOWN");
}

TEST_F(LeaseTableTest, MoreEndedLeasesThanItRemembersEndOlderOnes) {
  const auto claims = [&](int i) {
    v1::LeaseClaims claims = Claims(absl::StrCat("l", i), absl::StrCat("s", i));
    claims.mutable_issue_time()->set_seconds(1'700'000'000 + i);
    claims.mutable_expire_time()->set_seconds(1'900'000'000 + i);
    return claims;
  };
  const int most = static_cast<int>(LeaseTable::kMaxEnded);
  v1::SignedLease signed_lease;
  for (int i = 0; i <= most; ++i) {
    v1::LeaseClaims claim = claims(i);
    claim.set_worker_id("w0");
    claim.set_worker_incarnation(kIncarnation);
    signed_lease.set_claims(claim.SerializeAsString());
    ASSERT_TRUE(table_.Renew(signed_lease, claim, now_).ok());
    ASSERT_EQ(table_.TakeSession(absl::StrCat("s", i)).size(), 1u);
  }
  // The table does not remember the first lease by id any more.
  EXPECT_EQ(Refusal(Issue(claims(0)), "s0"), "LEASE_UNKNOWN");
  EXPECT_EQ(Refusal(Issue(claims(most)), absl::StrCat("s", most)),
            "LEASE_UNKNOWN");
  EXPECT_EQ(Refusal(Issue(claims(most + 1)), absl::StrCat("s", most + 1)), "");
}

TEST_F(LeaseTableTest, IncompleteLeasesAreRefused) {
  v1::LeaseClaims claims = Claims();
  claims.mutable_limits()->clear_memory_bytes();
  EXPECT_EQ(ErrorReason(Renew(Issue(claims))), "MALFORMED_LEASE");
  claims = Claims();
  claims.mutable_tenant_limits();
  EXPECT_EQ(ErrorReason(Renew(Issue(claims))), "MALFORMED_LEASE");
  claims = Claims("");
  EXPECT_EQ(ErrorReason(Renew(Issue(claims))), "MALFORMED_LEASE");
}

TEST(LeaseMeterTest, RunsUntilTheCreditIsGone) {
  Traffic total;
  LeaseMeter meter(&total);
  EXPECT_TRUE(meter.HasCredit());
  EXPECT_FALSE(meter.Add(v1::PHASE_UNSPECIFIED, absl::Hours(1)));
  v1::LeaseClaims claims;
  claims.mutable_credits()->mutable_device_time()->set_seconds(3600 + 10);
  meter.SetCredits(claims);
  EXPECT_TRUE(meter.HasCredit());
  EXPECT_FALSE(meter.Add(v1::PHASE_UNSPECIFIED, absl::Seconds(4)));
  // Reports once that half of the last credit is used.
  EXPECT_TRUE(meter.Add(v1::PHASE_UNSPECIFIED, absl::Seconds(1)));
  EXPECT_FALSE(meter.Add(v1::PHASE_UNSPECIFIED, absl::Seconds(1)));
  meter.SetCredits(claims);
  EXPECT_FALSE(meter.Add(v1::PHASE_UNSPECIFIED, absl::Seconds(1)));
  EXPECT_FALSE(meter.Add(v1::PHASE_UNSPECIFIED, absl::Seconds(9)));
  EXPECT_FALSE(meter.HasCredit());
  EXPECT_EQ(meter.use().device_time().seconds(), 3600 + 16);
  claims.mutable_credits()->mutable_device_time()->set_seconds(3600 + 20);
  meter.SetCredits(claims);
  EXPECT_TRUE(meter.HasCredit());
  claims.clear_credits();
  meter.SetCredits(claims);
  EXPECT_TRUE(meter.HasCredit());
}

TEST(LeaseMeterTest, BytesCountToo) {
  Traffic total;
  LeaseMeter meter(&total);
  v1::LeaseClaims claims;
  claims.mutable_credits()->set_bytes(100);
  meter.SetCredits(claims);
  meter.traffic()->Add(Traffic::kBulkIn, 40);
  EXPECT_FALSE(meter.Add(v1::PHASE_UNSPECIFIED, absl::ZeroDuration()));
  meter.traffic()->Add(Traffic::kMessagesOut, 59);
  EXPECT_TRUE(meter.Add(v1::PHASE_UNSPECIFIED, absl::ZeroDuration()));
  EXPECT_TRUE(meter.HasCredit());
  meter.traffic()->Add(Traffic::kBulkOut, 1);
  EXPECT_FALSE(meter.HasCredit());
  EXPECT_EQ(meter.use().bytes(), 100u);
  EXPECT_EQ(total.bytes(), 100u);
}

}  // namespace
}  // namespace djinn::worker
