// Tests quotas that operators set: their effect, their life beside the
// configuration and a restart, and stores that fail.
#include "coordinator/admin/quota_setter.h"

#include <map>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

// Each lease takes 1 GiB of its tenant's memory quota, which is as much.
class QuotaSetterTest : public ClusterTest {
 protected:
  QuotaSetterTest() {
    for (Tenant& tenant : config_.tenants) {
      tenant.cohort = "lab";
      tenant.quotas[0].nominal = kGiB;
    }
    tenants_.Replace(config_.tenants);
    Restart();
  }

  absl::StatusOr<v1::TenantInfo> Set(const std::string& tenant,
                                     const std::string& resource,
                                     double nominal) {
    v1::SetQuotaRequest request;
    request.set_tenant(tenant);
    (*request.mutable_quotas())[resource].set_nominal(nominal);
    return Setter().Set(request, "olga");
  }
  absl::StatusOr<v1::TenantInfo> Unset(const std::string& tenant,
                                       const std::string& resource = "") {
    v1::UnsetQuotaRequest request;
    request.set_tenant(tenant);
    if (!resource.empty()) request.add_resources(resource);
    return Setter().Unset(request);
  }
  QuotaSetter& Setter() {
    setter_.emplace(cluster_.get(), [this] {
      kept_ = persistence::Save(*cluster_);
      return keep_result_;
    });
    return *setter_;
  }
  v1::ResourceQuota Memory(const std::string& tenant = "red") {
    const v1::TenantInfo info = views::GetTenant(*cluster_, tenant).value();
    return info.quotas().empty() ? v1::ResourceQuota() : info.quotas(0);
  }
  std::string Gate(const StreamId& session) {
    return explain::ExplainSession(*cluster_, session.owner)
        ->devices(0)
        .gate()
        .reason();
  }

  absl::Status keep_result_;
  std::map<std::string, std::string> kept_;
  std::optional<QuotaSetter> setter_;
};

TEST_F(QuotaSetterTest, AWaitingRequestIsGrantedWithAGreaterQuotaAtOnce) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  Grant(Open("blue"), 0, worker, &w0_);
  const StreamId waits = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, waits, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Gate(waits), "QUOTA_EXCEEDED");
  ASSERT_TRUE(Set("red", "memory_bytes", 2 * kGiB).ok());
  // No time has passed.
  Execute(worker, &w0_);
  EXPECT_TRUE(Next(waits)->has_granted());
}

TEST_F(QuotaSetterTest, OperatorsSeeWhoSetAQuotaInPlaceOfWhat) {
  clock_.Advance(absl::Seconds(5));
  ASSERT_TRUE(Set("red", "memory_bytes", 2 * kGiB).ok());
  const v1::ResourceQuota quota = Memory();
  EXPECT_EQ(quota.nominal(), 2 * kGiB);
  EXPECT_EQ(quota.override().set_by(), "olga");
  EXPECT_EQ(quota.override().configured().nominal(), kGiB);
  EXPECT_TRUE(quota.override().until_restart());
  EXPECT_FALSE(Memory("blue").has_override());
  const v1::TenantExplanation explanation =
      *explain::ExplainTenant(*cluster_, "red");
  EXPECT_EQ(explanation.quotas(0).override().set_by(), "olga");
  // A resource that the configuration does not limit.
  const v1::TenantInfo info = *Set("red", "cache_bytes", 5);
  ASSERT_EQ(info.quotas_size(), 2);
  EXPECT_FALSE(info.quotas(1).override().has_configured());
  EXPECT_EQ(QuotaSetter::Text(info), "memory_bytes=2147483648 cache_bytes=5");
  // With a state file, the quota outlives the process.
  config_.state_file = "state.db";
  EXPECT_FALSE(Memory().override().until_restart());
}

TEST_F(QuotaSetterTest, UnsetReturnsToTheConfiguration) {
  ASSERT_TRUE(Set("red", "memory_bytes", 2 * kGiB).ok());
  ASSERT_TRUE(Set("red", "device_seconds_per_second", 3).ok());
  EXPECT_EQ(Unset("red", "memory_bytes")->quotas_size(), 2);
  EXPECT_EQ(Memory().nominal(), kGiB);
  EXPECT_FALSE(Memory().has_override());
  EXPECT_TRUE(tenants_.Find("red")->device_rate.has_value());
  EXPECT_EQ(ErrorReason(Unset("red", "memory_bytes").status()),
            "QUOTA_NOT_SET");
  EXPECT_EQ(Unset("red")->quotas_size(), 1);
  EXPECT_FALSE(tenants_.Find("red")->device_rate.has_value());
  EXPECT_FALSE(tenants_.Find("red")->credits.device_time_rated);
  EXPECT_EQ(tenants_.Find("red")->configured, nullptr);
}

TEST_F(QuotaSetterTest, AReloadChangesWhatAnUnsetReturnsTo) {
  ASSERT_TRUE(Set("red", "memory_bytes", 2 * kGiB).ok());
  config_.tenants[0].quotas[0].nominal = 5 * kGiB;
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_EQ(Memory().nominal(), 2 * kGiB);
  EXPECT_EQ(Memory().override().configured().nominal(), 5 * kGiB);
  ASSERT_TRUE(Unset("red").ok());
  EXPECT_EQ(Memory().nominal(), 5 * kGiB);
}

TEST_F(QuotaSetterTest, ATenantThatIsConfiguredAgainHasWhatWasSet) {
  ASSERT_TRUE(Set("red", "memory_bytes", 2 * kGiB).ok());
  tenants::Set(*cluster_, {config_.tenants[1]});
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_EQ(Memory().nominal(), 2 * kGiB);
  tenants::Set(*cluster_, {config_.tenants[1]});
  // The quota of a tenant that was removed can be unset.
  const v1::TenantInfo left = *Unset("red");
  EXPECT_EQ(left.tenant(), "red");
  EXPECT_EQ(ErrorReason(Unset("red").status()), "TENANT_UNKNOWN");
  tenants::Set(*cluster_, config_.tenants);
  EXPECT_EQ(Memory().nominal(), kGiB);
}

TEST_F(QuotaSetterTest, AQuotaOutlivesTheProcess) {
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  ASSERT_TRUE(Set("red", "memory_bytes", 2 * kGiB).ok());
  ASSERT_TRUE(Set("red", "device_seconds_per_second", 3).ok());
  EXPECT_THAT(kept_, Contains(Key("quota/memory_bytes/red")));
  tenants_.Replace(config_.tenants);
  Restart();
  EXPECT_EQ(Memory().nominal(), kGiB);
  ASSERT_EQ(persistence::Restore(*cluster_, kept_), absl::OkStatus());
  EXPECT_EQ(Memory().nominal(), 2 * kGiB);
  EXPECT_EQ(Memory().used(), kGiB);
  EXPECT_EQ(Memory().override().set_by(), "olga");
  EXPECT_EQ(tenants_.Find("red")->device_rate->nominal, 3);
  ASSERT_TRUE(Unset("red").ok());
  EXPECT_THAT(kept_, Not(Contains(Key("quota/memory_bytes/red"))));
}

TEST_F(QuotaSetterTest, AnUnreadableQuotaStopsARestore) {
  ASSERT_TRUE(Set("red", "memory_bytes", 2 * kGiB).ok());
  auto broken = kept_;
  broken["quota/memory_bytes/red"] = "\xff";
  const absl::Status status = persistence::Restore(*cluster_, broken);
  EXPECT_EQ(ErrorReason(status), "STORE_CORRUPT");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("quota/memory_bytes/red"));
  broken = kept_;
  broken["quota/red"] = broken["quota/memory_bytes/red"];
  EXPECT_EQ(ErrorReason(persistence::Restore(*cluster_, broken)),
            "STORE_CORRUPT");
}

TEST_F(QuotaSetterTest, AStoreThatFailsChangesNothing) {
  ASSERT_TRUE(Set("red", "memory_bytes", 3 * kGiB).ok());
  keep_result_ = MakeError(absl::StatusCode::kUnavailable, "STORE_IO", "disk");
  EXPECT_EQ(ErrorReason(Set("red", "memory_bytes", 2 * kGiB).status()),
            "STORE_IO");
  EXPECT_EQ(Memory().nominal(), 3 * kGiB);
  EXPECT_EQ(ErrorReason(Set("blue", "memory_bytes", 2 * kGiB).status()),
            "STORE_IO");
  EXPECT_FALSE(Memory("blue").has_override());
  EXPECT_EQ(ErrorReason(Unset("red").status()), "STORE_IO");
  EXPECT_EQ(Memory().nominal(), 3 * kGiB);
}

TEST_F(QuotaSetterTest, AWrongRequestChangesNothing) {
  EXPECT_EQ(ErrorReason(Set("green", "memory_bytes", 1).status()),
            "TENANT_UNKNOWN");
  EXPECT_EQ(ErrorReason(Set("red", "memory", 1).status()), "RESOURCE_UNKNOWN");
  EXPECT_EQ(ErrorReason(Set("red", "memory_bytes", -1).status()), "BAD_QUOTA");
  v1::SetQuotaRequest request;
  request.set_tenant("red");
  EXPECT_EQ(ErrorReason(Setter().Set(request, "olga").status()), "NO_QUOTA");
  // One wrong quota keeps the right one out.
  (*request.mutable_quotas())["cache_bytes"].set_nominal(1);
  (*request.mutable_quotas())["storage_bytes"].set_nominal(1.5);
  EXPECT_EQ(ErrorReason(Setter().Set(request, "olga").status()), "BAD_QUOTA");
  EXPECT_EQ(ErrorReason(Unset("red", "memory").status()), "RESOURCE_UNKNOWN");
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->quotas_size(), 1);
  EXPECT_THAT(kept_, IsEmpty());
}

}  // namespace
}  // namespace djinn::coordinator
