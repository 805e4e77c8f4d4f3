#include "coordinator/config/credit_ledger.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/proto_duration.h"
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
  // More is granted once less than half is left.
  ledger_.Bill("a", {absl::Seconds(1), 0}, {});
  EXPECT_FALSE(TopUp("a"));
  ledger_.Bill("a", {absl::Seconds(1.5), 0}, {});
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
    ledger_.Bill("a", {used, 0}, {});
  }
  EXPECT_EQ(used, absl::Seconds(32));
  EXPECT_FALSE(TopUp("b"));
  // A step that ran beyond the grant is billed.
  ledger_.Bill("a", {absl::Seconds(40), 0}, {});
  EXPECT_EQ(Used(), absl::Seconds(40));
  EXPECT_FALSE(TopUp("a"));
  // A greater credit helps once it exceeds the use.
  limits_.device_time = absl::Seconds(41);
  EXPECT_TRUE(TopUp("a"));
  EXPECT_EQ(Granted("a"), absl::Seconds(41));
}

TEST_F(CreditLedgerTest, BillsGrowthOnce) {
  ledger_.Bill("a", {absl::Seconds(3), 10}, {});
  ledger_.Bill("a", {absl::Seconds(3), 10}, {});
  // An older report of device time.
  ledger_.Bill("a", {absl::Seconds(1), 20}, {});
  const Use used = ledger_.tenants().at("red").used;
  EXPECT_EQ(used.device_time, absl::Seconds(3));
  EXPECT_EQ(used.bytes, 20u);
  ledger_.Bill("unknown", {absl::Seconds(9), 9}, {});
  EXPECT_EQ(ledger_.tenants().size(), 1u);
}

TEST_F(CreditLedgerTest, TheUnusedReturnsWhenALeaseEnds) {
  limits_.device_time = absl::Seconds(2);
  EXPECT_TRUE(TopUp("a"));
  EXPECT_TRUE(TopUp("b"));
  EXPECT_FALSE(TopUp("b"));
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(2));
  ledger_.Bill("a", {absl::Milliseconds(100), 0}, {});
  ledger_.Close("a", {});
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(1));
  // The lease's last steps are billed nevertheless.
  ledger_.Bill("a", {absl::Milliseconds(300), 0}, {});
  EXPECT_EQ(Used(), absl::Milliseconds(300));
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(1));
  ledger_.Settle("a", {});
  EXPECT_EQ(ledger_.Find("a"), nullptr);
  EXPECT_EQ(Used(), absl::Milliseconds(300));
}

TEST_F(CreditLedgerTest, ALostWorkersLeasesAreSettled) {
  ledger_.Open("c", "red", "w1");
  EXPECT_TRUE(TopUp("a"));
  EXPECT_TRUE(TopUp("c"));
  ledger_.SettleWorker(
      "w0", [](const std::string&) { return CreditLedger::Rates(); });
  EXPECT_EQ(ledger_.accounts().size(), 1u);
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(2));
}

TEST_F(CreditLedgerTest, BillsOfTheNewestRetiredAccountsAreKept) {
  absl::Duration now;
  TopUp("a");
  ledger_.RetireWorker(
      "w0", now, [](const std::string&) { return CreditLedger::Rates(); });
  EXPECT_EQ(ledger_.Reserved("red"), Use());
  ledger_.Bill("a", {absl::Seconds(1), 0}, {});
  EXPECT_EQ(Used(), absl::Seconds(1));
  // An account that returns is not forgotten with the retired ones.
  ledger_.Open("b", "red", "w0");
  for (size_t i = 0; i < CreditLedger::kMaxRetired; ++i) {
    const std::string id = absl::StrCat("l", i);
    ledger_.Open(id, "red", "w1");
    ledger_.Retire(id, now, {});
  }
  EXPECT_EQ(ledger_.Find("a"), nullptr);
  EXPECT_NE(ledger_.Find("b"), nullptr);
  EXPECT_EQ(ledger_.accounts().size(), CreditLedger::kMaxRetired + 1);
  now += CreditLedger::kKeepRetired;
  ledger_.ForgetRetired(now);
  EXPECT_EQ(ledger_.accounts().size(), CreditLedger::kMaxRetired + 1);
  ledger_.ForgetRetired(now + absl::Seconds(1));
  EXPECT_EQ(ledger_.accounts().size(), 1u);
}

TEST_F(CreditLedgerTest, NewPeriodRestoresTheCredit) {
  limits_.period = absl::Hours(24);
  while (TopUp("a")) ledger_.Bill("a", {Granted("a"), 0}, {});
  now_ += absl::Hours(24);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
  EXPECT_EQ(Granted("a"), absl::Seconds(34));
  ledger_.Bill("a", {absl::Seconds(33), 0}, {});
  EXPECT_EQ(Used(), absl::Seconds(1));
  EXPECT_EQ(ledger_.tenants().at("red").used.device_time, absl::Seconds(33));
}

TEST_F(CreditLedgerTest, AClockThatStepsBackBringsNoCredit) {
  limits_.period = absl::Hours(24);
  now_ = absl::UnixEpoch() + absl::Hours(24 * 50);
  const auto use_up = [&] {
    while (TopUp("a")) ledger_.Bill("a", {Granted("a"), 0}, {});
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
  // The time is 15:00.
  now_ = absl::UnixEpoch() + absl::Hours(24 * 50 + 15);
  const auto use_up = [&] {
    while (TopUp("a")) ledger_.Bill("a", {Granted("a"), 0}, {});
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
  // The new length holds from the next period on.
  now_ += absl::Hours(9) - absl::Seconds(1);
  EXPECT_FALSE(TopUp("a"));
  now_ += absl::Seconds(1);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
}

TEST_F(CreditLedgerTest, UseInAnEarlierPeriodDoesNotCount) {
  now_ = absl::UnixEpoch() + absl::Hours(24 * 50 + 15);
  limits_.period = absl::Hours(24);
  while (TopUp("a")) ledger_.Bill("a", {Granted("a"), 0}, {});
  now_ += absl::Hours(24);
  limits_.period = absl::Hours(12);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
}

TEST_F(CreditLedgerTest, UseBeforeThereWereCreditsDoesNotCountInAPeriod) {
  ledger_.Bill("a", {absl::Seconds(100), 0}, {});
  limits_.period = absl::Hours(24);
  EXPECT_EQ(Used(), absl::ZeroDuration());
  EXPECT_TRUE(TopUp("a"));
  ledger_.Bill("a", {absl::Seconds(101), 0}, {});
  EXPECT_EQ(Used(), absl::Seconds(1));
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
  ledger_.Bill("a", {absl::Seconds(8), 0}, {});
  EXPECT_EQ(ledger_.Reserved("red").device_time, absl::Seconds(2));
}

TEST_F(CreditLedgerTest, UseBeyondAnotherCoordinatorsGrantIsOwed) {
  v1::LeaseCredits credits;
  *credits.mutable_device_time() = ToProtoDuration(absl::Seconds(1));
  ledger_.Adopt("a", credits);
  ledger_.Bill("a", {absl::Seconds(9), 0}, {});
  double allowance = 5;
  ledger_.TopUp("a", {.device_time_rated = true}, now_,
                {.device_time = CreditLedger::Rate{&allowance, 0.5}});
  EXPECT_EQ(allowance, -3);
}

TEST_F(CreditLedgerTest, ARateGetsBackWhatIsUnusedAndIsOwedTheRest) {
  double allowance = 5;
  const CreditLedger::Rates rates = {.device_time =
                                         CreditLedger::Rate{&allowance, 2}};
  const auto open = [&](const char* lease) {
    ledger_.Open(lease, "red", "w0");
    ledger_.TopUp(lease, {.device_time_rated = true}, now_, rates);
    ledger_.Bill(lease, {absl::Seconds(0.5), 0}, rates);
  };
  open("c");
  EXPECT_EQ(allowance, 3);
  ledger_.Close("c", rates);
  EXPECT_EQ(allowance, 4.5);
  // The last step is measured after the lease's end; repeated reports count
  // once.
  ledger_.Bill("c", {absl::Seconds(4), 0}, rates);
  ledger_.Bill("c", {absl::Seconds(4), 0}, rates);
  EXPECT_EQ(allowance, 1);
  ledger_.Settle("c", rates);
  EXPECT_EQ(allowance, 1);
  // Use above the grants of a lease that ends counts, too.
  open("d");
  ledger_.Bill("d", {absl::Seconds(9), 0}, rates);
  ledger_.Settle("d", rates);
  EXPECT_EQ(allowance, 1 - 9);
  // Returned credit raises the allowance to its cap at most.
  allowance = 5;
  open("e");
  allowance = 4.75;
  ledger_.SettleWorker("w0", [&](const std::string&) {
    return CreditLedger::Rates{
        .device_time = CreditLedger::Rate{&allowance, 2, /*most=*/5}};
  });
  EXPECT_EQ(allowance, 5);
}

// Plays leases of one tenant that come, take turns while they have credit, and
// end, some with a turn that is reported later.
class RatedLeases {
 public:
  static constexpr double kRate = 0.5;
  static constexpr double kTurn = 3;

  RatedLeases(int seed, double most) : draws_(seed), most_(most) {}

  void Step() {
    const double passed = Draw();
    time_ += passed;
    allowance_ = std::min(allowance_ + kRate * passed, most_);
    switch (std::uniform_int_distribution(0, 3)(draws_)) {
      case 0: {
        const std::string id = absl::StrCat(next_++);
        ledger_.Open(id, "red", "w0");
        leases_[id];
        break;
      }
      case 1:
        if (Lease* const lease = Any(); lease != nullptr) {
          lease->ended = true;
          ledger_.Close(last_, Rates());
        }
        break;
      default:
        TakeTurn();
    }
    for (auto& [id, lease] : leases_) {
      if (!lease.ended) ledger_.TopUp(id, kLimits, absl::UnixEpoch(), Rates());
    }
    most_in_flight_ = std::max(most_in_flight_, leases_.size());
    // Measures the oldest lease that has ended.
    for (auto& [id, lease] : leases_) {
      if (!lease.ended) continue;
      Settle(id, lease);
      leases_.erase(id);
      break;
    }
  }
  void EndAll() {
    for (auto& [id, lease] : leases_) Settle(id, lease);
    leases_.clear();
  }

  double allowance() const { return allowance_; }
  double time() const { return time_; }
  double used() const { return used_; }
  size_t most_in_flight() const { return most_in_flight_; }

 private:
  static constexpr CreditLimits kLimits = {.device_time_rated = true};
  struct Lease {
    absl::Duration used;
    bool ended = false;
  };
  CreditLedger::Rates Rates() {
    return {.device_time = CreditLedger::Rate{&allowance_, 1, most_}};
  }
  double Draw() { return std::uniform_real_distribution(0.0, 1.0)(draws_); }
  Lease* Any() {
    std::vector<std::string> open;
    for (const auto& [id, lease] : leases_) {
      if (!lease.ended) open.push_back(id);
    }
    if (open.empty()) return nullptr;
    last_ =
        open[std::uniform_int_distribution<size_t>(0, open.size() - 1)(draws_)];
    return &leases_.at(last_);
  }
  void TakeTurn() {
    Lease* const lease = Any();
    if (lease == nullptr ||
        lease->used >= ledger_.Find(last_)->granted.device_time) {
      return;
    }
    const absl::Duration turn = absl::Seconds(kTurn * Draw());
    lease->used += turn;
    used_ += absl::ToDoubleSeconds(turn);
    if (Draw() < 0.3) {
      // The lease ends in this turn.
      lease->ended = true;
      ledger_.Close(last_, Rates());
    } else {
      ledger_.Bill(last_, {lease->used, 0}, Rates());
    }
  }
  void Settle(const std::string& id, const Lease& lease) {
    ledger_.Bill(id, {lease.used, 0}, Rates());
    ledger_.Settle(id, Rates());
  }

  std::mt19937 draws_;
  const double most_;
  CreditLedger ledger_;
  std::map<std::string, Lease> leases_;
  std::string last_;
  int next_ = 0;
  double allowance_ = 2;
  double time_ = 0;
  double used_ = 0;
  size_t most_in_flight_ = 0;
};

TEST(RatedLeasesTest, UseIsBoundedAndNothingIsLost) {
  for (int seed = 0; seed < 200; ++seed) {
    RatedLeases bounded(seed, /*most=*/2);
    RatedLeases unbounded(seed, std::numeric_limits<double>::infinity());
    for (int i = 0; i < 300; ++i) {
      bounded.Step();
      unbounded.Step();
      ASSERT_LE(bounded.used(),
                RatedLeases::kRate * bounded.time() + 2 +
                    RatedLeases::kTurn * bounded.most_in_flight() + 1e-6)
          << "seed " << seed << ", step " << i;
    }
    unbounded.EndAll();
    ASSERT_NEAR(unbounded.allowance() + unbounded.used(),
                2 + RatedLeases::kRate * unbounded.time(), 1e-6)
        << "seed " << seed;
  }
}

TEST_F(CreditLedgerTest, PhasesAddUpToDeviceTime) {
  Use use{absl::Seconds(3), 0};
  use.phases.Add(v1::PHASE_TRAINING, absl::Seconds(2));
  ledger_.Bill("a", use, {});
  // A phase that is reported to have shrunk pays for no other one.
  use.device_time = absl::Seconds(5);
  use.phases = {};
  use.phases.Add(v1::PHASE_TRAINING, absl::Seconds(1));
  use.phases.Add(v1::PHASE_FORWARD, absl::Seconds(9));
  ledger_.Bill("a", use, {});
  const Use billed = ledger_.tenants().at("red").used;
  EXPECT_EQ(billed.phases.of(v1::PHASE_TRAINING), absl::Seconds(2));
  EXPECT_EQ(billed.phases.of(v1::PHASE_FORWARD), absl::Seconds(2));
  EXPECT_EQ(billed.phases.of(v1::PHASE_UNSPECIFIED), absl::Seconds(1));
  EXPECT_EQ(billed.phases.total(), billed.device_time);
  EXPECT_EQ(ledger_.Find("a")->billed.phases, billed.phases);
}

TEST_F(CreditLedgerTest, UseInThePeriodIsKnownByPhase) {
  limits_.period = absl::Hours(24);
  TopUp("a");
  Use use{absl::Seconds(1), 0};
  use.phases.Add(v1::PHASE_FORWARD, absl::Seconds(1));
  ledger_.Bill("a", use, {});
  now_ += absl::Hours(24);
  TopUp("a");
  use.device_time = absl::Seconds(4);
  use.phases.Add(v1::PHASE_TRAINING, absl::Seconds(3));
  ledger_.Bill("a", use, {});
  const PhaseTimes now = ledger_.UsedNow("red", limits_, now_).phases;
  EXPECT_EQ(now.of(v1::PHASE_FORWARD), absl::ZeroDuration());
  EXPECT_EQ(now.of(v1::PHASE_TRAINING), absl::Seconds(3));
}

TEST_F(CreditLedgerTest, IsRestored) {
  EXPECT_TRUE(TopUp("a"));
  ledger_.Bill("a", {absl::Seconds(1), 5}, {});
  CreditLedger other;
  for (const auto& [tenant, state] : ledger_.tenants()) {
    other.Restore(tenant, state);
  }
  for (const auto& [lease, state] : ledger_.accounts()) {
    other.Restore(lease, state);
  }
  EXPECT_EQ(other.Reserved("red"), ledger_.Reserved("red"));
  other.Bill("a", {absl::Seconds(1.5), 5}, {});
  EXPECT_EQ(other.UsedNow("red", limits_, now_).device_time,
            absl::Seconds(1.5));
}

}  // namespace
}  // namespace djinn::coordinator
