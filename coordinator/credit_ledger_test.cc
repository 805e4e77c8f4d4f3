#include "coordinator/credit_ledger.h"

#include "common/net/proto_duration.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class CreditLedgerTest : public testing::Test {
 protected:
  CreditLedgerTest() {
    limits_.device_time = absl::Seconds(32);
    limits_.bytes = 64 * kMiB;
    ledger_.Open("a", "red", "w0");
    ledger_.Open("b", "red", "w0");
  }
  bool TopUp(const std::string& lease) {
    return ledger_.TopUp(lease, limits_, now_, {});
  }
  absl::Duration Granted(const std::string& lease) {
    return ledger_.Find(lease)->granted.device_time;
  }
  absl::Duration Used() {
    return ledger_.UsedNow("red", limits_, now_).device_time;
  }

  CreditLimits limits_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  CreditLedger ledger_;
};

TEST_F(CreditLedgerTest, HandsOutSlices) {
  EXPECT_TRUE(TopUp("a"));
  EXPECT_EQ(Granted("a"), absl::Seconds(2));
  EXPECT_EQ(ledger_.Find("a")->granted.bytes, 4 * kMiB);
  EXPECT_FALSE(TopUp("a"));
  // Half of it must be gone.
  ledger_.Bill("a", {absl::Seconds(1), 0});
  EXPECT_FALSE(TopUp("a"));
  ledger_.Bill("a", {absl::Seconds(1.5), 0});
  EXPECT_TRUE(TopUp("a"));
  EXPECT_EQ(Granted("a"), absl::Seconds(3.5));
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(2));
  EXPECT_EQ(Used(), absl::Seconds(1.5));
}

TEST_F(CreditLedgerTest, NeverGrantsMoreThanThereIs) {
  limits_.bytes.reset();
  absl::Duration used;
  while (TopUp("a")) {
    used = Granted("a");
    ledger_.Bill("a", {used, 0});
  }
  EXPECT_EQ(used, absl::Seconds(32));
  EXPECT_FALSE(TopUp("b"));
  // A step that ran beyond it is billed.
  ledger_.Bill("a", {absl::Seconds(40), 0});
  EXPECT_EQ(Used(), absl::Seconds(40));
  EXPECT_FALSE(TopUp("a"));
  // More credit helps, once there is more than was used.
  limits_.device_time = absl::Seconds(41);
  EXPECT_TRUE(TopUp("a"));
  EXPECT_EQ(Granted("a"), absl::Seconds(41));
}

TEST_F(CreditLedgerTest, BillsGrowthOnce) {
  ledger_.Bill("a", {absl::Seconds(3), 10});
  ledger_.Bill("a", {absl::Seconds(3), 10});
  // An older report.
  ledger_.Bill("a", {absl::Seconds(1), 20});
  const Use used = ledger_.tenants().at("red").used;
  EXPECT_EQ(used.device_time, absl::Seconds(3));
  EXPECT_EQ(used.bytes, 20u);
  ledger_.Bill("unknown", {absl::Seconds(9), 9});
  EXPECT_EQ(ledger_.tenants().size(), 1u);
}

TEST_F(CreditLedgerTest, TheUnusedReturnsWhenALeaseEnds) {
  limits_.device_time = absl::Seconds(2);
  EXPECT_TRUE(TopUp("a"));
  EXPECT_TRUE(TopUp("b"));
  EXPECT_FALSE(TopUp("b"));
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(2));
  ledger_.Bill("a", {absl::Milliseconds(100), 0});
  ledger_.Close("a");
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(1));
  // Its last steps are billed all the same.
  ledger_.Bill("a", {absl::Milliseconds(300), 0});
  EXPECT_EQ(Used(), absl::Milliseconds(300));
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(1));
  ledger_.Settle("a");
  EXPECT_EQ(ledger_.Find("a"), nullptr);
  EXPECT_EQ(Used(), absl::Milliseconds(300));
}

TEST_F(CreditLedgerTest, ALostWorkersLeasesAreSettled) {
  ledger_.Open("c", "red", "w1");
  EXPECT_TRUE(TopUp("a"));
  EXPECT_TRUE(TopUp("c"));
  ledger_.SettleWorker("w0");
  EXPECT_EQ(ledger_.accounts().size(), 1u);
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(2));
}

TEST_F(CreditLedgerTest, CreditComesAnewWithAPeriod) {
  limits_.period = absl::Hours(24);
  while (TopUp("a")) ledger_.Bill("a", {Granted("a"), 0});
  now_ += absl::Hours(24);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
  EXPECT_EQ(Granted("a"), absl::Seconds(34));
  ledger_.Bill("a", {absl::Seconds(33), 0});
  EXPECT_EQ(Used(), absl::Seconds(1));
  EXPECT_EQ(ledger_.tenants().at("red").used.device_time, absl::Seconds(33));
}

TEST_F(CreditLedgerTest, AClockThatStepsBackBringsNoCredit) {
  limits_.period = absl::Hours(24);
  now_ = absl::UnixEpoch() + absl::Hours(24 * 50);
  const auto use_up = [&] {
    while (TopUp("a")) ledger_.Bill("a", {Granted("a"), 0});
  };
  use_up();
  EXPECT_EQ(Used(), absl::Seconds(32));
  for (int i = 0; i < 3; ++i) {
    now_ -= absl::Seconds(1);
    EXPECT_EQ(Used(), absl::Seconds(32));
    use_up();
    now_ += absl::Seconds(1);
    use_up();
  }
  EXPECT_EQ(Granted("a"), absl::Seconds(32));
  now_ += absl::Hours(24);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
}

TEST_F(CreditLedgerTest, AnotherLengthOfPeriodsBringsNoCreditByItself) {
  // At 15:00.
  now_ = absl::UnixEpoch() + absl::Hours(24 * 50 + 15);
  const auto use_up = [&] {
    while (TopUp("a")) ledger_.Bill("a", {Granted("a"), 0});
  };
  limits_.period = absl::Hours(24);
  use_up();
  for (const int hours : {12, 24, 1, 12, 7, 24}) {
    limits_.period = absl::Hours(hours);
    EXPECT_EQ(Used(), absl::Seconds(32)) << hours;
    EXPECT_FALSE(TopUp("a")) << hours;
  }
  limits_.period = absl::InfiniteDuration();
  EXPECT_FALSE(TopUp("a"));
  limits_.period = absl::Hours(12);
  EXPECT_FALSE(TopUp("a"));
  // From the next period on, it is as long as it is now.
  now_ += absl::Hours(9) - absl::Seconds(1);
  EXPECT_FALSE(TopUp("a"));
  now_ += absl::Seconds(1);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
}

TEST_F(CreditLedgerTest, WhatCountedInAPeriodThatHasEndedDoesNotCount) {
  now_ = absl::UnixEpoch() + absl::Hours(24 * 50 + 15);
  limits_.period = absl::Hours(24);
  while (TopUp("a")) ledger_.Bill("a", {Granted("a"), 0});
  now_ += absl::Hours(24);
  limits_.period = absl::Hours(12);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
}

TEST_F(CreditLedgerTest, UseBeforeThereWereCreditsDoesNotCountInAPeriod) {
  ledger_.Bill("a", {absl::Seconds(100), 0});
  limits_.period = absl::Hours(24);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
  ledger_.Bill("a", {absl::Seconds(101), 0});
  EXPECT_EQ(Used(), absl::Seconds(1));
}

TEST_F(CreditLedgerTest, APeriodOfAnOlderProgramGoesOn) {
  limits_.period = absl::Hours(24);
  CreditLedger::Tenant old;
  old.used.device_time = absl::Seconds(40);
  old.before_period.device_time = absl::Seconds(10);
  old.period = (now_ - absl::UnixEpoch()) / absl::Hours(24);
  ledger_.Restore("red", old);
  EXPECT_EQ(Used(), absl::Seconds(30));
  TopUp("a");
  EXPECT_EQ(Used(), absl::Seconds(30));
  now_ += absl::Hours(24);
  EXPECT_EQ(Used(), absl::ZeroDuration());
}

TEST_F(CreditLedgerTest, NothingIsGrantedWhereNothingLimits) {
  limits_ = {};
  EXPECT_FALSE(TopUp("a"));
  v1::LeaseClaims claims;
  ledger_.Describe("a", limits_, &claims);
  EXPECT_FALSE(claims.has_credits());
  limits_.bytes = 64 * kMiB;
  EXPECT_TRUE(TopUp("a"));
  ledger_.Describe("a", limits_, &claims);
  EXPECT_EQ(claims.credits().bytes(), 4 * kMiB);
  EXPECT_FALSE(claims.credits().has_device_time());
}

TEST_F(CreditLedgerTest, TakesUpWhatAnotherCoordinatorGranted) {
  v1::LeaseCredits credits;
  *credits.mutable_device_time() = ToProtoDuration(absl::Seconds(10));
  ledger_.Adopt("a", credits);
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(10));
  ledger_.Bill("a", {absl::Seconds(8), 0});
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(2));
}

TEST_F(CreditLedgerTest, WhatWasUsedBeyondAnotherCoordinatorsGrantIsOwed) {
  v1::LeaseCredits credits;
  *credits.mutable_device_time() = ToProtoDuration(absl::Seconds(1));
  ledger_.Adopt("a", credits);
  ledger_.Bill("a", {absl::Seconds(9), 0});
  double allowance = 5;
  ledger_.TopUp("a", {.device_time_rated = true}, now_,
                {.device_time = CreditLedger::Rate{&allowance, 0.5}});
  EXPECT_EQ(allowance, -3);
}

TEST_F(CreditLedgerTest, PhasesAddUpToDeviceTime) {
  Use use{absl::Seconds(3), 0};
  use.phases.Add(v1::PHASE_TRAINING, absl::Seconds(2));
  ledger_.Bill("a", use);
  // One that is said to have shrunk pays for no other.
  use.device_time = absl::Seconds(5);
  use.phases = {};
  use.phases.Add(v1::PHASE_TRAINING, absl::Seconds(1));
  use.phases.Add(v1::PHASE_FORWARD, absl::Seconds(9));
  ledger_.Bill("a", use);
  const Use billed = ledger_.tenants().at("red").used;
  EXPECT_EQ(billed.phases.of(v1::PHASE_TRAINING), absl::Seconds(2));
  EXPECT_EQ(billed.phases.of(v1::PHASE_FORWARD), absl::Seconds(2));
  EXPECT_EQ(billed.phases.of(v1::PHASE_UNSPECIFIED), absl::Seconds(1));
  EXPECT_EQ(billed.phases.total(), billed.device_time);
  EXPECT_EQ(ledger_.Find("a")->billed.phases, billed.phases);
}

TEST_F(CreditLedgerTest, WhatWasUsedInAPeriodIsKnownByPhase) {
  limits_.period = absl::Hours(24);
  TopUp("a");
  Use use{absl::Seconds(1), 0};
  use.phases.Add(v1::PHASE_FORWARD, absl::Seconds(1));
  ledger_.Bill("a", use);
  now_ += absl::Hours(24);
  TopUp("a");
  use.device_time = absl::Seconds(4);
  use.phases.Add(v1::PHASE_TRAINING, absl::Seconds(3));
  ledger_.Bill("a", use);
  const PhaseTimes now = ledger_.UsedNow("red", limits_, now_).phases;
  EXPECT_EQ(now.of(v1::PHASE_FORWARD), absl::ZeroDuration());
  EXPECT_EQ(now.of(v1::PHASE_TRAINING), absl::Seconds(3));
}

TEST_F(CreditLedgerTest, WhatIsOlderThanPhasesIsOfNone) {
  ledger_.Restore("red", CreditLedger::Tenant{{absl::Seconds(7), 0}, {}, 0});
  EXPECT_EQ(ledger_.tenants().at("red").used.phases.of(v1::PHASE_UNSPECIFIED),
            absl::Seconds(7));
}

TEST_F(CreditLedgerTest, IsRestored) {
  EXPECT_TRUE(TopUp("a"));
  ledger_.Bill("a", {absl::Seconds(1), 5});
  CreditLedger other;
  for (const auto& [tenant, state] : ledger_.tenants()) {
    other.Restore(tenant, state);
  }
  for (const auto& [lease, state] : ledger_.accounts()) {
    other.Restore(lease, state);
  }
  EXPECT_EQ(other.Reserved("red"), ledger_.Reserved("red"));
  other.Bill("a", {absl::Seconds(1.5), 5});
  EXPECT_EQ(other.UsedNow("red", limits_, now_).device_time,
            absl::Seconds(1.5));
}

}  // namespace
}  // namespace djinn::coordinator
