#include "coordinator/config/quota_trial.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "coordinator/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using scheduler::Resource;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status Checked(const v1::TryQuotaRequest& request, const Tenant& tenant) {
  return CheckQuota(request.resource(), TriedAmounts(request), tenant);
}

TEST(QuotaTest, APutQuotaIsTheTenants) {
  Tenant tenant = TestTenant("red");
  tenant.cohort = "lab";
  for (const char* resource :
       {kDeviceRate, kByteRate, "memory_bytes", "content_bytes",
        "storage_bytes", "cache_bytes", "outstanding_messages"}) {
    EXPECT_FALSE(QuotaOf(resource, tenant).has_value()) << resource;
    v1::QuotaAmounts amounts;
    amounts.set_nominal(7);
    amounts.set_lending_limit(3);
    ASSERT_TRUE(CheckQuota(resource, amounts, tenant).ok());
    PutQuota(resource, amounts, &tenant);
    EXPECT_EQ(QuotaOf(resource, tenant)->ShortDebugString(),
              amounts.ShortDebugString())
        << resource;
  }
  EXPECT_TRUE(tenant.credits.device_time_rated);
  EXPECT_TRUE(tenant.credits.bytes_rated);
}

// Red has 10 and uses 14; blue has 10 and uses 2.
class QuotaTrialTest : public testing::Test {
 protected:
  QuotaTrialTest() {
    for (Tenant& tenant : tenants_) {
      tenant.cohort = "lab";
      tenant.quotas[0].nominal = 10;
    }
    tree_.Configure(Configured().tenants);
    tree_.Take("red", {14});
    tree_.Take("blue", {2});
  }
  ConfiguredQuotas Configured() const {
    return QuotasOf(*Tenants(tenants_).all(), {});
  }
  static v1::TryQuotaRequest Request(
      const std::string& tenant, double nominal,
      const std::string& resource = "memory_bytes") {
    v1::TryQuotaRequest request;
    request.set_tenant(tenant);
    request.set_resource(resource);
    request.set_nominal(nominal);
    return request;
  }
  v1::TryQuotaResponse Try(const v1::TryQuotaRequest& request) const {
    EXPECT_EQ(Checked(request, tenants_[0]), absl::OkStatus());
    return TryAmount(request, Configured(), tree_);
  }
  // Returns the error of the request, or an empty string.
  std::string Check(const v1::TryQuotaRequest& request) const {
    const absl::Status status = Checked(request, tenants_[0]);
    return status.ok() ? "" : std::string(status.message());
  }

  std::vector<Tenant> tenants_ = {TestTenant("red"), TestTenant("blue")};
  scheduler::QuotaTree tree_;
};

TEST_F(QuotaTrialTest, MoreOfItsOwnMeansLessBorrowed) {
  const v1::TryQuotaResponse response = Try(Request("red", 13));
  EXPECT_EQ(response.before().nominal(), 10);
  EXPECT_EQ(response.before().used(), 14);
  EXPECT_EQ(response.before().borrowed(), 4);
  EXPECT_EQ(response.after().nominal(), 13);
  EXPECT_EQ(response.after().used(), 14);
  EXPECT_EQ(response.after().borrowed(), 1);
  EXPECT_EQ(response.over_nominal(), 1);
  // The tenants use 16 of 23.
  EXPECT_EQ(response.available(), 7);
  ASSERT_THAT(response.others(), SizeIs(1));
  EXPECT_EQ(response.others(0).tenant(), "blue");
  EXPECT_EQ(response.others(0).before().lent(), 4);
  EXPECT_EQ(response.others(0).after().lent(), 1);
  EXPECT_THAT(response.reclaims_from(), IsEmpty());
  // Blue may claim 8 more, of which 7 are free.
  EXPECT_THAT(response.reclaimed_by(), ElementsAre("blue"));
  // The trial has changed nothing.
  EXPECT_EQ(tree_.Borrowed("red", Resource::kMemoryBytes), 4);
}

TEST_F(QuotaTrialTest, LessOfItsOwnIsOverNominalAndCanBeTakenBack) {
  const v1::TryQuotaResponse response = Try(Request("red", 1));
  EXPECT_EQ(response.over_nominal(), 13);
  EXPECT_EQ(response.after().borrowed(), 13);
  // The tenants use 16 of 11.
  EXPECT_EQ(response.available(), 0);
  EXPECT_THAT(response.reclaimed_by(), ElementsAre("blue"));
}

TEST_F(QuotaTrialTest, TheOtherCouldTakeBackWhatIsItsOwn) {
  const v1::TryQuotaResponse response = Try(Request("blue", 12));
  EXPECT_EQ(response.over_nominal(), 0);
  EXPECT_THAT(response.reclaims_from(), ElementsAre("red"));
  EXPECT_THAT(response.reclaimed_by(), IsEmpty());
}

TEST_F(QuotaTrialTest, ALendingLimitKeepsItsOwnFree) {
  v1::TryQuotaRequest request = Request("blue", 10);
  request.set_lending_limit(0);
  const v1::TryQuotaResponse response = Try(request);
  EXPECT_EQ(response.after().lending_limit(), 0);
  EXPECT_FALSE(response.before().has_lending_limit());
  // The borrowed amount stays, but no tenant lends it.
  EXPECT_EQ(response.before().lent(), 4);
  EXPECT_EQ(response.after().lent(), 0);
  // Blue owns 8 more. Of the others' 10, 14 are in use, which is 4 too many.
  EXPECT_EQ(response.available(), 4);
  EXPECT_THAT(response.reclaims_from(), ElementsAre("red"));
}

TEST_F(QuotaTrialTest, AResourceThatWasNotLimitedHasNoBefore) {
  tree_.Take("red", {0, 5});
  const v1::TryQuotaResponse response = Try(Request("red", 3, "content_bytes"));
  EXPECT_FALSE(response.has_before());
  EXPECT_EQ(response.after().used(), 5);
  EXPECT_EQ(response.over_nominal(), 2);
}

TEST_F(QuotaTrialTest, QuotaThatNoConfigurationCanHaveIsRefused) {
  const absl::Status unknown =
      Checked(Request("red", 1, "memory"), tenants_[0]);
  EXPECT_EQ(ErrorReason(unknown), "RESOURCE_UNKNOWN");
  EXPECT_EQ(unknown.message(),
            "there is no resource \"memory\": one of "
            "device_seconds_per_second, bytes_per_second, memory_bytes, "
            "content_bytes, storage_bytes, cache_bytes, outstanding_messages");
  EXPECT_EQ(ErrorReason(Checked(Request("red", -1), tenants_[0])), "BAD_QUOTA");
  EXPECT_EQ(Check(Request("red", 1.5)),
            "memory_bytes.nominalQuota must be a whole number, got 1.5");
  EXPECT_EQ(Check(Request("red", 1.5, "device_seconds_per_second")), "");
  EXPECT_EQ(Check(Request("red", 2e6, "device_seconds_per_second")),
            "device_seconds_per_second.nominalQuota must be from 0 to 1e+06, "
            "got 2e+06");
  EXPECT_NE(Check(Request("red", std::nan(""))), "");
  EXPECT_NE(Check(Request("red", std::numeric_limits<double>::infinity())), "");
  EXPECT_NE(Check(Request("red", 5e9, "outstanding_messages")), "");
  v1::TryQuotaRequest limited = Request("red", 1);
  limited.set_borrowing_limit(-2);
  EXPECT_NE(Check(limited), "");
  limited.set_borrowing_limit(2);
  EXPECT_EQ(Check(limited), "");
  Tenant alone = tenants_[0];
  alone.cohort.clear();
  EXPECT_EQ(Checked(limited, alone).message(),
            "memory_bytes.borrowingLimit would mean nothing: tenant red has no "
            "cohort to borrow from or lend to");
}

class RateTrialTest : public testing::Test {
 protected:
  RateTrialTest() {
    for (Tenant& tenant : tenants_) {
      tenant.cohort = "lab";
      tenant.device_rate.emplace().nominal = 1;
    }
    Configure();
  }
  void Configure() {
    configured_ = QuotasOf(*Tenants(tenants_).all(), {}).device_rates;
    budget_.Configure(configured_.tenants);
    budget_.Advance(now_, {});
  }
  v1::TryQuotaResponse Try(const Tenant& tenant, double nominal) const {
    v1::TryQuotaRequest request;
    request.set_tenant(tenant.name);
    request.set_resource(kDeviceRate);
    request.set_nominal(nominal);
    EXPECT_EQ(Checked(request, tenant), absl::OkStatus());
    return TryRate(request, tenant, configured_, budget_, now_);
  }

  std::vector<Tenant> tenants_ = {TestTenant("red"), TestTenant("blue")};
  ConfiguredRates configured_;
  scheduler::RateBudget budget_{0.02, 60};
  absl::Duration now_ = absl::Seconds(1);
};

TEST_F(RateTrialTest, WaitingTenantBorrowsLessWithALargerQuota) {
  budget_.NoteWaiting("red", now_);
  now_ += absl::Seconds(1);
  budget_.Advance(now_, {});
  const v1::TryQuotaResponse response = Try(tenants_[0], 3);
  EXPECT_EQ(response.before().borrowed(), 1);
  EXPECT_EQ(response.after().nominal(), 3);
  // The tenant wants all that is available.
  EXPECT_EQ(response.after().borrowed(), 1);
  EXPECT_EQ(response.available(), 4);
  EXPECT_THAT(response.others(), IsEmpty());
  EXPECT_THAT(response.reclaims_from(), IsEmpty());
  // A lender that no longer owns anything.
  const v1::TryQuotaResponse less = Try(tenants_[1], 0);
  EXPECT_EQ(less.before().lent(), 1);
  EXPECT_EQ(less.after().lent(), 0);
  ASSERT_THAT(less.others(), SizeIs(1));
  EXPECT_EQ(less.others(0).tenant(), "red");
  EXPECT_EQ(less.others(0).after().borrowed(), 0);
}

TEST_F(RateTrialTest, TenantWithoutAQuotaIsAssumedToWantAll) {
  tenants_[0].device_rate.reset();
  Configure();
  const v1::TryQuotaResponse response = Try(tenants_[0], 2);
  EXPECT_FALSE(response.has_before());
  EXPECT_EQ(response.after().borrowed(), 1);
  EXPECT_EQ(response.available(), 3);
}

}  // namespace
}  // namespace djinn::coordinator
