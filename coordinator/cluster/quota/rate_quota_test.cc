// Tests quotas of device time and bytes per second.
#include <map>
#include <string>

#include "common/base/proto_duration.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/testing/quota_fixture.h"
#include "gmock/gmock.h"
#include "scheduler/quota/rate_budget.h"

namespace djinn::coordinator {
namespace {

using scheduler::RateBudget;
using ::testing::SizeIs;

class RateQuotaTest : public ClusterQuotaTest {
 protected:
  // Gives red a lease that may use half of the device's time.
  void LeaseHalfADevice() {
    config_.tenants[0].device_rate = {.nominal = 0.5};
    config_.tenants[0].credits.device_time_rated = true;
    tenants::Set(*cluster_, config_.tenants);
    Leased("red");
  }
  // Returns the credits that the worker's only lease was granted.
  v1::LeaseCredits Credits() const {
    return UncheckedClaims(w0_.sessions(0).lease()).credits();
  }
  absl::Duration DeviceTime() const {
    return FromProtoDuration(Credits().device_time());
  }
  // Reports what the lease used in total; it has no credit left.
  void ReportUse(absl::Duration device_time) {
    v1::HeldSession* const held = w0_.mutable_sessions(0);
    *held->mutable_lease_use()->mutable_device_time() =
        ToProtoDuration(device_time);
    held->set_out_of_credit(true);
    EXPECT_EQ(workers::Report(*cluster_, worker_, w0_), absl::OkStatus());
  }
  // Lets the time pass, interval by interval.
  void Pass(double seconds) {
    for (int i = 0; i < 10 * seconds; ++i) {
      clock_.Advance(RateBudget::kInterval);
      coordinator::Tick(*cluster_);
      Execute(worker_, &w0_);
    }
  }
  // Uses at once all that each interval grants.
  void UseAll(int intervals) {
    for (int i = 0; i < intervals; ++i) {
      ReportUse(DeviceTime());
      Pass(0.1);
    }
  }
};

TEST_F(RateQuotaTest, DeviceTimeIsGrantedAsFastAsTheQuotaAllows) {
  LeaseHalfADevice();
  EXPECT_EQ(DeviceTime(), absl::Milliseconds(500));
  UseAll(600);
  absl::Duration before = DeviceTime();
  UseAll(600);
  EXPECT_NEAR(absl::ToDoubleSeconds(DeviceTime() - before), 30, 1);
  EXPECT_NEAR(views::GetTenant(*cluster_, "red")->quotas(0).used(), 0.5, 0.05);
  // A step that took longer than the credit is owed.
  *w0_.mutable_sessions(0)->mutable_lease_use()->mutable_device_time() =
      ToProtoDuration(DeviceTime() + absl::Seconds(10));
  EXPECT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  before = DeviceTime();
  Pass(19);
  EXPECT_LE(DeviceTime(), before + absl::Seconds(10));
  // Without the quota, nothing limits the lease.
  Tenant& red = config_.tenants[0];
  red.device_rate.reset();
  red.credits.device_time_rated = false;
  tenants::Set(*cluster_, config_.tenants);
  Execute(worker_, &w0_);
  EXPECT_FALSE(UncheckedClaims(w0_.sessions(0).lease()).has_credits());
}

TEST_F(RateQuotaTest, BytesAreGrantedAsFastAsTheQuotaAllows) {
  Tenant& red = config_.tenants[0];
  red.byte_rate = {.nominal = 1e6};
  red.credits.bytes_rated = true;
  tenants::Set(*cluster_, config_.tenants);
  Leased("red");
  EXPECT_EQ(Credits().bytes(), 1000000u);
  EXPECT_FALSE(Credits().has_device_time());
  // An upload continues to its end, and is paid for before other transfers.
  w0_.mutable_sessions(0)->mutable_lease_use()->set_bytes(60'000'000);
  w0_.mutable_sessions(0)->set_out_of_credit(true);
  EXPECT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  EXPECT_EQ(
      explain::ExplainTenant(*cluster_, "red")->held(0).gate().unblocked_by(),
      "time: its quota of bytes_per_second grants more");
  EXPECT_EQ(views::GetLease(*cluster_, LeaseId(w0_))->credits().bytes(),
            60'000'000u);
  Pass(45);
  EXPECT_EQ(Credits().bytes(), 60'000'000u);
  Pass(10);
  EXPECT_GT(Credits().bytes(), 60'000'000u);
  // The session uses at once all that it gets.
  const auto use = [&] {
    const uint64_t before = Credits().bytes();
    for (int i = 0; i < 600; ++i) {
      w0_.mutable_sessions(0)->mutable_lease_use()->set_bytes(
          Credits().bytes());
      EXPECT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
      Pass(0.1);
    }
    return static_cast<double>(Credits().bytes() - before);
  };
  use();  // also uses what it had left
  EXPECT_NEAR(use(), 60e6, 2e6);
  const v1::ResourceQuota quota = views::GetTenant(*cluster_, "red")->quotas(0);
  EXPECT_EQ(quota.resource(), "bytes_per_second");
  EXPECT_NEAR(quota.used(), 1e6, 1e5);
}

// Restarts a coordinator repeatedly, whose tenant may use half a device.
class RestartedRateTest : public RateQuotaTest {
 protected:
  RestartedRateTest() { LeaseHalfADevice(); }
  void Use(absl::Duration used) {
    ReportUse(used);
    Apply();
  }
  // Has the worker apply what is granted now.
  void Apply() {
    coordinator::Tick(*cluster_);
    Execute(worker_, &w0_);
  }
  void RestartFrom(const std::map<std::string, std::string>& saved) {
    Restart();
    ASSERT_EQ(persistence::Restore(*cluster_, saved), absl::OkStatus());
    w0_.set_applied_revision(0);
    worker_ = Join(w0_);
    Apply();
  }
};

TEST_F(RestartedRateTest, ItsBurstsAreNotGrantedAgain) {
  const auto saved = persistence::Save(*cluster_);
  const absl::Duration before = DeviceTime();
  for (int i = 0; i < 20; ++i) {
    RestartFrom(i % 2 == 0 ? saved : persistence::Save(*cluster_));
    Use(DeviceTime());
  }
  EXPECT_EQ(DeviceTime(), before);
  Pass(1);
  EXPECT_GT(DeviceTime(), before);
}

TEST_F(RestartedRateTest, DebtSurvivesARestart) {
  // The use is 10 s beyond the grant. With 4.5 s of its burst left, 5.5 s are
  // owed.
  Use(DeviceTime() + absl::Seconds(10));
  const absl::Duration before = DeviceTime();
  RestartFrom(persistence::Save(*cluster_));
  Pass(10);
  EXPECT_EQ(DeviceTime(), before);
  Pass(3);
  EXPECT_GT(DeviceTime(), before);
}

TEST_F(RestartedRateTest, UseDuringARestartIsOwed) {
  const auto saved = persistence::Save(*cluster_);
  const absl::Duration used = DeviceTime() + absl::Seconds(10);
  *w0_.mutable_sessions(0)->mutable_lease_use()->mutable_device_time() =
      ToProtoDuration(used);
  w0_.mutable_sessions(0)->set_out_of_credit(true);
  RestartFrom(saved);
  Pass(19);
  EXPECT_LE(DeviceTime(), used);
  Pass(3);
  EXPECT_GT(DeviceTime(), used);
}

TEST_F(RateQuotaTest, TenantWithoutDeviceTimeBorrowsNoBytes) {
  for (Tenant& tenant : config_.tenants) {
    tenant.cohort = "lab";
    tenant.device_rate = {.nominal = 0.5};
    tenant.byte_rate = {.nominal = 1e6};
    tenant.credits.device_time_rated = tenant.credits.bytes_rated = true;
  }
  tenants::Set(*cluster_, config_.tenants);
  Leased("red");
  UseAll(50);
  const v1::TenantInfo red = *views::GetTenant(*cluster_, "red");
  ASSERT_THAT(red.quotas(), SizeIs(2));
  EXPECT_EQ(red.quotas(0).resource(), "device_seconds_per_second");
  EXPECT_NEAR(red.quotas(0).borrowed(), 0.5, 0.01);
  EXPECT_EQ(red.quotas(1).borrowed(), 0);
}

}  // namespace
}  // namespace djinn::coordinator
