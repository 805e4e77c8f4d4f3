#include "coordinator/tables/quota_overrides.h"

#include <string>
#include <vector>

#include "common/base/error.h"
#include "coordinator/config/quota_trial.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::StoredQuota Quota(double nominal) {
  v1::StoredQuota quota;
  quota.mutable_amounts()->set_nominal(nominal);
  quota.set_set_by("vera");
  return quota;
}

std::vector<Tenant> Configured() {
  Tenant red, blue;
  red.name = "red";
  red.quotas[0].nominal = 10;
  blue.name = "blue";
  return {red, blue};
}

TEST(QuotaOverridesTest, AnOverrideReplacesOneResourceOfOneTenant) {
  QuotaOverrides overrides;
  overrides.Set("red", {{"memory_bytes", Quota(20)}, {kDeviceRate, Quota(2)}});
  const std::vector<Tenant> tenants = overrides.Over(Configured());
  EXPECT_EQ(tenants[0].quotas[0].nominal, 20);
  EXPECT_EQ(tenants[0].device_rate->nominal, 2);
  EXPECT_TRUE(tenants[0].credits.device_time_rated);
  EXPECT_FALSE(tenants[0].quotas[1].limited());
  ASSERT_NE(tenants[0].configured, nullptr);
  EXPECT_EQ(tenants[0].configured->quotas[0].nominal, 10);
  EXPECT_FALSE(tenants[0].configured->credits.device_time_rated);
  EXPECT_EQ(tenants[1].configured, nullptr);
  // The tenants return to what the configuration has.
  const std::vector<Tenant> back = Tenants(tenants).Configured();
  EXPECT_EQ(back[1].quotas[0].nominal, 10);
  EXPECT_FALSE(back[1].device_rate.has_value());
}

TEST(QuotaOverridesTest, ATenantWithoutOverridesIsNotListed) {
  QuotaOverrides overrides;
  overrides.Set("red", {{"memory_bytes", Quota(20)}});
  EXPECT_NE(overrides.Find("red", "memory_bytes"), nullptr);
  EXPECT_EQ(overrides.Find("red", "cache_bytes"), nullptr);
  EXPECT_EQ(overrides.Find("blue", "memory_bytes"), nullptr);
  overrides.Set("red", {});
  EXPECT_THAT(overrides.Save(), IsEmpty());
  EXPECT_THAT(overrides.Of("red"), IsEmpty());
}

TEST(QuotaOverridesTest, SavedOverridesAreRestored) {
  QuotaOverrides overrides;
  overrides.Set("lab/red", {{"memory_bytes", Quota(20)}});
  overrides.Set("red", {{"memory_bytes", Quota(1)}, {kByteRate, Quota(5)}});
  QuotaOverrides restored;
  for (const auto& [name, stored] : overrides.Save()) {
    EXPECT_TRUE(restored.Restore(name, stored).ok());
  }
  EXPECT_THAT(restored.Of("red"), SizeIs(2));
  EXPECT_EQ(restored.Find("lab/red", "memory_bytes")->amounts().nominal(), 20);
  EXPECT_EQ(restored.Find("red", kByteRate)->set_by(), "vera");
}

TEST(QuotaOverridesTest, AnUnknownResourceIsKeptAndNotApplied) {
  QuotaOverrides overrides;
  ASSERT_TRUE(overrides.Restore("flying_bytes/red", Quota(20)).ok());
  EXPECT_EQ(overrides.Over(Configured())[0].quotas[0].nominal, 10);
  EXPECT_THAT(overrides.Save(), SizeIs(1));
}

TEST(QuotaOverridesTest, ANameThatIsNoneIsRefused) {
  for (const char* name : {"", "memory_bytes", "/red", "memory_bytes/"}) {
    QuotaOverrides overrides;
    EXPECT_EQ(ErrorReason(overrides.Restore(name, Quota(1))), "STORE_CORRUPT")
        << name;
    EXPECT_THAT(overrides.Save(), IsEmpty());
  }
}

}  // namespace
}  // namespace djinn::coordinator
