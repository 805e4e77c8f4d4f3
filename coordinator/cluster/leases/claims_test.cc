// Tests how much of a worker's memory requests may claim, for themselves and
// from others.
#include <string>
#include <utility>
#include <vector>

#include "coordinator/admin/explain.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/reclaim_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// A cluster with one worker of 8 GiB, all free.
class ClusterClaimsTest : public ClusterTest {
 protected:
  // Limits the memory of each of red's leases, and of all of them at one
  // worker.
  void Limit(uint64_t each, uint64_t together) {
    config_.tenants[0].limits.set_memory_bytes(each);
    config_.tenants[0].totals.set_memory_bytes(together);
    tenants::Set(*cluster_, config_.tenants);
  }
  void AskFor(const StreamId& session, uint64_t contents, uint64_t needed = 0,
              uint32_t device = 0) {
    v1::LeaseRequest request = TestLeaseRequest(device, ++hash_, contents);
    request.set_needed_bytes(needed);
    EXPECT_EQ(requests::Request(*cluster_, session, request), absl::OkStatus());
  }
  v1::DeviceExplanation Explain(const StreamId& session, int device = 0) {
    return explain::ExplainSession(*cluster_, session.owner)->devices(device);
  }
  // Returns the worker that another request for `bytes` would get.
  std::string OthersGet(uint64_t bytes) {
    const StreamId session = Open("blue");
    AskFor(session, bytes);
    const std::string worker_id = Explain(session).decision().worker_id();
    sessions::Close(*cluster_, session);
    return worker_id;
  }

  StreamId worker_ = Join(w0_);
  uint64_t hash_ = 0;
};

TEST_F(ClusterClaimsTest, RequestAboveTheLimitIsRefusedAtOnce) {
  Limit(16 * kMiB, 64 * kMiB);
  const StreamId session = Open("red");
  AskFor(session, 0, 8 * kGiB);
  const auto answer = Next(session);
  ASSERT_TRUE(answer.has_value() && answer->has_refused());
  EXPECT_EQ(answer->refused().code(),
            static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(answer->refused().reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(answer->refused().message(),
            "a lease of tenant red may have 16777216 memory_bytes, has 0 and "
            "asks for 8589934592 more");
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  EXPECT_EQ(OthersGet(kGiB), "w0");
  AskFor(session, 0, 16 * kMiB);
  EXPECT_EQ(Explain(session).decision().worker_id(), "w0");
}

TEST_F(ClusterClaimsTest, AllLeasesOfATenantLimitEachOfThem) {
  Limit(kGiB, 16 * kMiB);
  const StreamId session = Open("red");
  AskFor(session, 0, 17 * kMiB);
  EXPECT_EQ(Next(session)->refused().reason(), "QUOTA_EXCEEDED");
}

TEST_F(ClusterClaimsTest, AnOverflowingNeedIsRefused) {
  const StreamId session = Open("red");
  AskFor(session, ~uint64_t{0}, ~uint64_t{0});
  EXPECT_EQ(Next(session)->refused().reason(), "QUOTA_EXCEEDED");
}

TEST_F(ClusterClaimsTest, ALimitThatBecomesLessEndsTheWait) {
  w0_.set_free_bytes(10);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  const StreamId session = Open("red");
  AskFor(session, 0, kGiB);
  EXPECT_EQ(Explain(session).gate().reason(), "NO_CAPACITY");
  Limit(16 * kMiB, 64 * kMiB);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(session)->refused().reason(), "QUOTA_EXCEEDED");
}

// Uploads beyond that may go to further workers, or are refused one by one.
TEST_F(ClusterClaimsTest, ContentsClaimNoMoreThanALeaseMayHold) {
  Limit(16 * kMiB, 64 * kMiB);
  for (int i = 0; i < 4; ++i) {
    const StreamId session = Open("red");
    AskFor(session, 8 * kGiB);
    EXPECT_EQ(Explain(session).decision().asked_bytes(), 16 * kMiB);
    EXPECT_EQ(Explain(session).decision().worker_id(), "w0");
  }
  EXPECT_EQ(OthersGet(kGiB), "w0");
}

TEST_F(ClusterClaimsTest, ATenantClaimsNoMoreThanItsSessionsMayHoldTogether) {
  w0_.set_free_bytes(kGiB);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  Limit(256 * kMiB, 320 * kMiB);
  const StreamId session = Open("red");
  for (uint32_t device = 0; device < 3; ++device) {
    AskFor(session, 256 * kMiB, 0, device);
  }
  EXPECT_EQ(OthersGet(704 * kMiB), "w0");
  EXPECT_EQ(OthersGet(705 * kMiB), "");
  // Memory that the sessions now hold is no longer promised.
  Execute(worker_, &w0_);
  w0_.mutable_sessions(0)->set_storage_bytes(256 * kMiB);
  w0_.set_free_bytes(768 * kMiB);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  EXPECT_EQ(OthersGet(704 * kMiB), "w0");
  EXPECT_EQ(OthersGet(705 * kMiB), "");
}

TEST_F(ClusterClaimsTest, APromiseEndsWithItsLease) {
  w0_.set_free_bytes(kGiB);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  const StreamId session = Open("red");
  AskFor(session, kGiB);
  Execute(worker_, &w0_);
  const auto granted = Next(session);
  ASSERT_TRUE(granted.has_value() && granted->has_granted());
  EXPECT_EQ(OthersGet(kGiB), "");
  v1::LeaseReturn returned;
  returned.set_lease_id(granted->granted().lease().lease_id());
  ASSERT_TRUE(requests::Return(*cluster_, session, returned).ok());
  EXPECT_EQ(OthersGet(kGiB), "w0");
}

TEST_F(ClusterClaimsTest, ADryRunKnowsTheLimit) {
  Limit(16 * kMiB, 64 * kMiB);
  v1::TryPlacementRequest request;
  request.set_tenant("red");
  request.set_asked_bytes(16 * kMiB);
  EXPECT_FALSE(explain::TryPlacement(*cluster_, request)->has_gate());
  request.set_asked_bytes(17 * kMiB);
  const v1::TryPlacementResponse response =
      *explain::TryPlacement(*cluster_, request);
  EXPECT_EQ(response.gate().reason(), "QUOTA_EXCEEDED");
  EXPECT_THAT(response.gate().unblocked_by(), HasSubstr("a larger limit"));
}

// Blue lends one GiB of the four that red borrows; green lends the others.
class ClusterLenderTest : public ClusterReclaimTest {
 protected:
  ClusterLenderTest() {
    config_.tenants[2].cohort = "lab";
    config_.tenants[2].quotas[0].nominal = 7 * kGiB;
    Lend(0, 1);
    w0_.set_free_bytes(4 * kGiB);
    EXPECT_EQ(workers::Report(*cluster_, worker_, w0_), absl::OkStatus());
  }
};

TEST_F(ClusterLenderTest, TakesBackNoMoreThanItsOwn) {
  std::vector<StreamId> borrowers;
  for (int i = 0; i < 4; ++i) borrowers.push_back(Fill("red", 1 << 30));
  const StreamId lender = OpenAndAsk("blue", 4 * kGiB);
  int lost = 0;
  for (const StreamId& borrower : borrowers) lost += Lost(borrower);
  EXPECT_EQ(lost, 1);
  DropAndReport(1 << 30);
  Execute(worker_, &w0_);
  EXPECT_TRUE(Has(lender));
}

TEST_F(ClusterLenderTest, TakesBackNoMoreThanThePartThatItHasAQuotaOf) {
  constexpr auto kContents =
      static_cast<size_t>(scheduler::Resource::kContentBytes);
  for (Tenant& tenant : config_.tenants) {
    std::swap(tenant.quotas[0], tenant.quotas[kContents]);
    tenant.limits.set_content_bytes(100 * kMiB);
  }
  tenants::Set(*cluster_, config_.tenants);
  const StreamId borrower = Fill("red", 1 << 30);
  w0_.set_free_bytes(0);
  ASSERT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  const StreamId lender = OpenAndAsk("blue", 101 * kMiB);
  EXPECT_EQ(Explain(lender).gate().reason(), "NO_CAPACITY");
  EXPECT_EQ(Next(borrower), std::nullopt);
  sessions::Close(*cluster_, lender);
  clock_.Advance(absl::Seconds(1));
  OpenAndAsk("blue", 100 * kMiB);
  EXPECT_TRUE(Lost(borrower));
}

}  // namespace
}  // namespace djinn::coordinator
