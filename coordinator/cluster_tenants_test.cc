// Tenants that come, change and go while the cluster runs.
#include "common/error.h"
#include "common/lease/lease_verifier.h"
#include "common/net/proto_duration.h"
#include "coordinator/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using ClusterTenantsTest = ClusterTest;

TEST_F(ClusterTenantsTest, NothingChangesWhereNothingChanged) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  const v1::ReloadConfigResponse changes =
      cluster_->SetTenants(config_.tenants);
  EXPECT_EQ(changes.ByteSizeLong(), 0u);
  EXPECT_EQ(Desired(worker), std::nullopt);
}

TEST_F(ClusterTenantsTest, RunningLeasesGetTheNewLimits) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  config_.tenants[0].limits.set_memory_bytes(12345);
  config_.tenants[0].totals.set_max_outstanding(77);
  config_.tenants[0].credits.device_time = absl::Seconds(32);
  const v1::ReloadConfigResponse changes =
      cluster_->SetTenants(config_.tenants);
  EXPECT_THAT(changes.changed_tenants(), ElementsAre("red"));
  const v1::LeaseClaims claims = UncheckedClaims(Desired(worker)->leases(0));
  EXPECT_EQ(claims.issue(), 2u);
  EXPECT_EQ(claims.limits().memory_bytes(), 12345u);
  EXPECT_EQ(claims.tenant_limits().max_outstanding(), 77u);
  EXPECT_EQ(FromProtoDuration(claims.credits().device_time()),
            absl::Seconds(2));
  EXPECT_EQ(cluster_->GetTenant("red")->limits().memory_bytes(), 12345u);
}

TEST_F(ClusterTenantsTest, AFewerSessionsLimitEndsNone) {
  const StreamId first = Open("red");
  Open("red");
  config_.tenants[0].max_sessions = 1;
  cluster_->SetTenants(config_.tenants);
  EXPECT_THAT(cluster_->Sessions().items, SizeIs(2));
  EXPECT_EQ(ErrorReason(Attach("red").status()), "TOO_MANY_SESSIONS");
  // Who is there may come back.
  Open("red", first.owner);
}

TEST_F(ClusterTenantsTest, ARemovedTenantsSessionsEnd) {
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  const StreamId away = Open("red");
  const std::shared_ptr<const Tenant> red = tenants_.Find("red");
  Grant(session, 0, worker, &w0_);
  cluster_->Detach(away);
  const v1::ReloadConfigResponse changes =
      cluster_->SetTenants({config_.tenants[1]});
  EXPECT_THAT(changes.removed_tenants(), ElementsAre("red"));
  EXPECT_THAT(cluster_->Leases().items, IsEmpty());
  EXPECT_THAT(Desired(worker)->drop_session_ids(), ElementsAre(session.owner));
  EXPECT_EQ(ErrorReason(cluster_->RequestLease(session, TestLeaseRequest(1))),
            "TOKEN_UNKNOWN");
  // Its stream hears why, and then it is gone.
  EXPECT_EQ(ErrorReason(cluster_->NextResponse(session).status()),
            "TOKEN_UNKNOWN");
  EXPECT_THAT(cluster_->Sessions().items, IsEmpty());
  // A stream that was let in before finds no tenant.
  EXPECT_EQ(
      ErrorReason(
          cluster_->Attach(*red, TestOpen(session.owner), nullptr).status()),
      "TOKEN_UNKNOWN");
}

TEST_F(ClusterTenantsTest, ARemovedTenantsStreamMayBreakFirst) {
  const StreamId session = Open("red");
  cluster_->SetTenants({config_.tenants[1]});
  EXPECT_EQ(cluster_->Sessions().items.size(), 1u);
  cluster_->Detach(session);
  EXPECT_THAT(cluster_->Sessions().items, IsEmpty());
}

TEST_F(ClusterTenantsTest, ATenantThatComesBackBeginsAnew) {
  const StreamId session = Open("red");
  cluster_->SetTenants({config_.tenants[1]});
  cluster_->SetTenants(config_.tenants);
  // The client never heard of it, and had nothing to lose.
  const StreamId again = Open("red", session.owner);
  EXPECT_EQ(again.owner, session.owner);
  EXPECT_THAT(cluster_->Sessions().items, SizeIs(1));
  EXPECT_EQ(ErrorReason(cluster_->NextResponse(session).status()),
            "SESSION_ATTACHED_ELSEWHERE");
}

}  // namespace
}  // namespace djinn::coordinator
