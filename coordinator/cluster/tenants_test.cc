// Tests tenants that are added, changed and removed while the cluster runs.
#include "coordinator/cluster/tenants.h"

#include <optional>
#include <vector>

#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/retry_after.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/testing/cluster_fixture.h"
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
      tenants::Set(*cluster_, config_.tenants);
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
      tenants::Set(*cluster_, config_.tenants);
  EXPECT_THAT(changes.changed_tenants(), ElementsAre("red"));
  const v1::LeaseClaims claims = UncheckedClaims(Desired(worker)->leases(0));
  EXPECT_EQ(claims.revision(), 2u);
  EXPECT_EQ(claims.limits().memory_bytes(), 12345u);
  EXPECT_EQ(claims.tenant_limits().max_outstanding(), 77u);
  EXPECT_EQ(FromProtoDuration(claims.credits().device_time()),
            absl::Seconds(2));
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->limits().memory_bytes(),
            12345u);
}

TEST_F(ClusterTenantsTest, ABudgetOfModelsTravelsWithTheLease) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  EXPECT_FALSE(views::GetTenant(*cluster_, "red")->has_max_models());
  config_.tenants[0].totals.set_max_models(2);
  config_.tenants[0].totals.set_model_bytes(0);
  EXPECT_THAT(tenants::Set(*cluster_, config_.tenants).changed_tenants(),
              ElementsAre("red"));
  const v1::LeaseClaims claims = UncheckedClaims(Desired(worker)->leases(0));
  EXPECT_EQ(claims.tenant_limits().max_models(), 2u);
  EXPECT_TRUE(claims.tenant_limits().has_model_bytes());
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->max_models(), 2u);
  EXPECT_TRUE(views::GetTenant(*cluster_, "red")->has_model_bytes());
}

TEST_F(ClusterTenantsTest, ALimitOfNodesTravelsWithTheLease) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  EXPECT_FALSE(views::GetTenant(*cluster_, "red")->has_node_limit());
  config_.tenants[0].totals.mutable_node_limit()->set_seconds(30);
  EXPECT_THAT(tenants::Set(*cluster_, config_.tenants).changed_tenants(),
              ElementsAre("red"));
  const v1::LeaseClaims claims = UncheckedClaims(Desired(worker)->leases(0));
  EXPECT_EQ(claims.tenant_limits().node_limit().seconds(), 30);
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->node_limit().seconds(), 30);
}

TEST_F(ClusterTenantsTest, EveryWorkerIsToldWhoSharesContents) {
  const StreamId worker = Join(w0_);
  EXPECT_THAT(Desired(worker)->sharing_tenants(), IsEmpty());
  // No tenant has a lease there, but contents outlive leases.
  config_.tenants[0].share_contents = true;
  const v1::ReloadConfigResponse changes =
      tenants::Set(*cluster_, config_.tenants);
  EXPECT_THAT(changes.changed_tenants(), ElementsAre("red"));
  EXPECT_THAT(Desired(worker)->sharing_tenants(), ElementsAre("red"));
  EXPECT_TRUE(views::GetTenant(*cluster_, "red")->share_contents());
  config_.tenants[0].share_contents = false;
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_THAT(Desired(worker)->sharing_tenants(), IsEmpty());
}

TEST_F(ClusterTenantsTest, EveryWorkerIsToldWhoBatchesWithOthers) {
  const StreamId worker = Join(w0_);
  EXPECT_THAT(Desired(worker)->batching_tenants(), IsEmpty());
  config_.tenants[0].batch_with_others = true;
  const v1::ReloadConfigResponse changes =
      tenants::Set(*cluster_, config_.tenants);
  EXPECT_THAT(changes.changed_tenants(), ElementsAre("red"));
  EXPECT_THAT(Desired(worker)->batching_tenants(), ElementsAre("red"));
  EXPECT_TRUE(views::GetTenant(*cluster_, "red")->batch_with_others());
  config_.tenants[0].batch_with_others = false;
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_THAT(Desired(worker)->batching_tenants(), IsEmpty());
}

v1::OpenSession OpenWith(v1::PriorityClass priority_class,
                         const std::string& resume = "") {
  v1::OpenSession open = TestOpen(resume);
  open.mutable_urgency()->set_priority_class(priority_class);
  return open;
}

TEST_F(ClusterTenantsTest, LeasesCarryWeightAndPriority) {
  config_.tenants[0].weight = 3;
  tenants::Set(*cluster_, config_.tenants);
  const StreamId worker = Join(w0_);
  const auto urgency = [&] {
    return UncheckedClaims(Desired(worker)->leases(0)).urgency();
  };
  const StreamId session = *sessions::Attach(*cluster_, *tenants_.Find("red"),
                                             OpenWith(v1::PRIORITY_CLASS_BATCH),
                                             std::make_shared<CountingWaker>());
  EXPECT_EQ(Next(session)->opened().max_priority_class(),
            v1::PRIORITY_CLASS_REALTIME);
  Grant(session, 0, worker, &w0_);
  const v1::LeaseClaims claims = UncheckedClaims(w0_.sessions(0).lease());
  EXPECT_EQ(claims.weight(), 3);
  EXPECT_EQ(claims.urgency().priority_class(), v1::PRIORITY_CLASS_BATCH);
  // The session declares another class.
  v1::Urgency hurried;
  hurried.set_priority_class(v1::PRIORITY_CLASS_REALTIME);
  hurried.mutable_run_deadline()->set_seconds(2);
  EXPECT_TRUE(sessions::SetUrgency(*cluster_, session, hurried).ok());
  EXPECT_EQ(urgency().ShortDebugString(), hurried.ShortDebugString());
  EXPECT_EQ(
      views::Sessions(*cluster_, {}).items[0].urgency().ShortDebugString(),
      hurried.ShortDebugString());
  // Declaring the same again sends no message.
  EXPECT_TRUE(sessions::SetUrgency(*cluster_, session, hurried).ok());
  EXPECT_EQ(Desired(worker), std::nullopt);
  // The tenant may no longer use that class.
  config_.tenants[0].max_priority_class = v1::PRIORITY_CLASS_INTERACTIVE;
  config_.tenants[0].weight = 1.5;
  EXPECT_THAT(tenants::Set(*cluster_, config_.tenants).changed_tenants(),
              ElementsAre("red"));
  EXPECT_EQ(urgency().priority_class(), v1::PRIORITY_CLASS_INTERACTIVE);
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->weight(), 1.5);
  // The tenant may use it again.
  config_.tenants[0].max_priority_class = v1::PRIORITY_CLASS_REALTIME;
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_EQ(urgency().priority_class(), v1::PRIORITY_CLASS_REALTIME);
}

TEST_F(ClusterTenantsTest, AnUndeclaredPriorityStaysSo) {
  const auto [worker, session, lease] = Granted("red");
  const auto priority = [&] {
    return UncheckedClaims(w0_.sessions(0).lease()).urgency().priority_class();
  };
  EXPECT_EQ(priority(), v1::PRIORITY_CLASS_UNSPECIFIED);
  // Above the tenant's highest class, that class counts.
  config_.tenants[0].max_priority_class = v1::PRIORITY_CLASS_BATCH;
  tenants::Set(*cluster_, config_.tenants);
  Execute(worker, &w0_);
  EXPECT_EQ(priority(), v1::PRIORITY_CLASS_BATCH);
}

TEST_F(ClusterTenantsTest, APriorityThatIsNotAllowedIsRefused) {
  config_.tenants[0].max_priority_class = v1::PRIORITY_CLASS_BATCH;
  tenants::Set(*cluster_, config_.tenants);
  const auto attach = [&](const v1::OpenSession& open) {
    return sessions::Attach(*cluster_, *tenants_.Find("red"), open,
                            std::make_shared<CountingWaker>());
  };
  const absl::Status refused =
      attach(OpenWith(v1::PRIORITY_CLASS_INTERACTIVE)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrorReason(refused), "PRIORITY_NOT_ALLOWED");
  EXPECT_EQ(refused.message(),
            "sessions of tenant red may have priority batch at most, "
            "interactive was asked");
  // A session that declares nothing gets the tenant's class, and a returning
  // session is never turned away.
  const absl::StatusOr<StreamId> session = attach(TestOpen());
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE(
      attach(OpenWith(v1::PRIORITY_CLASS_REALTIME, session->owner)).ok());
  EXPECT_EQ(views::Sessions(*cluster_, {}).items[0].urgency().priority_class(),
            v1::PRIORITY_CLASS_BATCH);
  v1::OpenSession late = TestOpen();
  late.mutable_urgency()->mutable_run_deadline()->set_seconds(-1);
  EXPECT_EQ(ErrorReason(attach(late).status()), "PROTOCOL_VIOLATION");
}

TEST_F(ClusterTenantsTest, PriorityOutlivesTheCoordinator) {
  const StreamId worker = Join(w0_);
  const StreamId session = *sessions::Attach(*cluster_, *tenants_.Find("red"),
                                             OpenWith(v1::PRIORITY_CLASS_BATCH),
                                             std::make_shared<CountingWaker>());
  EXPECT_TRUE(Next(session)->has_opened());
  Grant(session, 0, worker, &w0_);
  const std::map<std::string, std::string> state = persistence::Save(*cluster_);
  const auto class_after_restart = [&] {
    w0_.set_applied_revision(0);
    Join(w0_);
    return views::Sessions(*cluster_, {}).items[0].urgency().priority_class();
  };
  // The class is restored from the saved state, and from the worker.
  Restart();
  EXPECT_TRUE(persistence::Restore(*cluster_, state).ok());
  EXPECT_EQ(class_after_restart(), v1::PRIORITY_CLASS_BATCH);
  Restart();
  EXPECT_EQ(class_after_restart(), v1::PRIORITY_CLASS_BATCH);
}

TEST_F(ClusterTenantsTest, AFewerSessionsLimitEndsNone) {
  const StreamId first = Open("red");
  Open("red");
  config_.tenants[0].max_sessions = 1;
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, SizeIs(2));
  const absl::Status refused = Attach("red").status();
  EXPECT_EQ(ErrorReason(refused), "TOO_MANY_SESSIONS");
  EXPECT_EQ(RetryAfter(refused), absl::Seconds(5));
  // An existing session may return.
  Open("red", first.owner);
}

TEST_F(ClusterTenantsTest, SessionWithoutAClientMakesRoomAfterASecond) {
  std::vector<StreamId> sessions;
  for (int i = 0; i < 4; ++i) sessions.push_back(Open("red"));
  EXPECT_EQ(RetryAfter(Attach("red").status()), absl::Seconds(5));
  sessions::Detach(*cluster_, sessions[2]);
  clock_.Advance(absl::Milliseconds(400));
  sessions::Detach(*cluster_, sessions[1]);
  EXPECT_EQ(RetryAfter(Attach("red").status()), absl::Milliseconds(600));
  sessions::Close(*cluster_, Open("red", sessions[2].owner));
  Open("red");
  EXPECT_EQ(RetryAfter(Attach("red").status()), absl::Seconds(1));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(Attach("red").ok());
}

TEST_F(ClusterTenantsTest, ARemovedTenantsSessionsEnd) {
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  const StreamId away = Open("red");
  const std::shared_ptr<const Tenant> red = tenants_.Find("red");
  Grant(session, 0, worker, &w0_);
  sessions::Detach(*cluster_, away);
  const v1::ReloadConfigResponse changes =
      tenants::Set(*cluster_, {config_.tenants[1]});
  EXPECT_THAT(changes.removed_tenants(), ElementsAre("red"));
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  EXPECT_THAT(Desired(worker)->drop_session_ids(), ElementsAre(session.owner));
  EXPECT_EQ(
      ErrorReason(requests::Request(*cluster_, session, TestLeaseRequest(1))),
      "TOKEN_UNKNOWN");
  // Its graphs are no longer recorded.
  EXPECT_FALSE(sessions::NoteGraph(*cluster_, session, "fingerprint"));
  // Its stream gets the reason, and then the session ends.
  EXPECT_EQ(ErrorReason(sessions::NextResponse(*cluster_, session).status()),
            "TOKEN_UNKNOWN");
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  // A stream that was authenticated before finds no tenant.
  EXPECT_EQ(ErrorReason(sessions::Attach(*cluster_, *red,
                                         TestOpen(session.owner), nullptr)
                            .status()),
            "TOKEN_UNKNOWN");
}

TEST_F(ClusterTenantsTest, UseOfARemovedTenantStaysCounted) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  w0_.mutable_sessions(0)->mutable_lease_use()->set_bytes(10);
  *w0_.mutable_sessions(0)->mutable_lease_use()->mutable_device_time() =
      ToProtoDuration(absl::Seconds(2));
  EXPECT_EQ(workers::Report(*cluster_, worker, w0_), absl::OkStatus());
  tenants::Set(*cluster_, {config_.tenants[1]});
  EXPECT_THAT(
      Metrics(),
      testing::AllOf(
          testing::HasSubstr("djinn_tenant_bytes_total{tenant=\"red\"} 10\n"),
          testing::HasSubstr("djinn_tenant_device_seconds_total{tenant="
                             "\"red\",phase=\"unknown\"} 2\n")));
}

TEST_F(ClusterTenantsTest, ARemovedTenantsStreamMayBreakFirst) {
  const StreamId session = Open("red");
  tenants::Set(*cluster_, {config_.tenants[1]});
  EXPECT_EQ(views::Sessions(*cluster_, {}).items.size(), 1u);
  sessions::Detach(*cluster_, session);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
}

TEST_F(ClusterTenantsTest, SessionOfAReturnedTenantAttachesAgain) {
  const StreamId session = Open("red");
  tenants::Set(*cluster_, {config_.tenants[1]});
  tenants::Set(*cluster_, config_.tenants);
  // The client was not notified, and had nothing to lose.
  const StreamId again = Open("red", session.owner);
  EXPECT_EQ(again.owner, session.owner);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, SizeIs(1));
  EXPECT_EQ(ErrorReason(sessions::NextResponse(*cluster_, session).status()),
            "SESSION_ATTACHED_ELSEWHERE");
}

}  // namespace
}  // namespace djinn::coordinator
