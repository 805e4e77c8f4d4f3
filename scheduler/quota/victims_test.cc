#include "scheduler/quota/victims.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Makes a session that holds `memory` of its tenant's quota and would lose
// `lost` seconds.
Victim Session(const std::string& tenant, const std::string& id, int64_t memory,
               int lost, bool spared = false, int priority_class = 2) {
  Victim victim;
  victim.tenant = tenant;
  victim.session_id = id;
  victim.worker_id = "w";
  victim.lost = absl::Seconds(lost);
  victim.quota = {memory};
  victim.rank = {spared, priority_class, victim.lost, absl::Seconds(100)};
  return victim;
}

std::vector<std::string> Ids(const std::vector<Victim>& victims) {
  std::vector<std::string> ids;
  for (const Victim& victim : victims) ids.push_back(victim.session_id);
  return ids;
}

// Red and green borrow from blue, whose quota is 30.
class VictimsTest : public testing::Test {
 protected:
  VictimsTest() {
    quotas_.Configure(
        {{.tenant = "red", .cohort = "lab", .quotas = {Quota{.nominal = 0}}},
         {.tenant = "green", .cohort = "lab", .quotas = {Quota{.nominal = 0}}},
         {.tenant = "blue",
          .cohort = "lab",
          .quotas = {Quota{.nominal = 30}}}});
  }
  void Have(const Victim& victim) {
    quotas_.Take(victim.tenant, victim.quota);
    sessions_.push_back(victim);
  }
  std::vector<Victim> ForQuota(int64_t asked,
                               ReclaimLosses::Allowance allowance = {}) {
    const int64_t red = quotas_.Used("red", Resource::kMemoryBytes);
    const int64_t green = quotas_.Used("green", Resource::kMemoryBytes);
    std::vector<Victim> victims = VictimsForQuota(
        "blue", {asked},
        [&](const std::string& tenant) {
          std::vector<Victim> of;
          for (const Victim& session : sessions_) {
            if (session.tenant == tenant) of.push_back(session);
          }
          return of;
        },
        allowance, &quotas_);
    EXPECT_EQ(quotas_.Used("red", Resource::kMemoryBytes), red);
    EXPECT_EQ(quotas_.Used("green", Resource::kMemoryBytes), green);
    return victims;
  }

  QuotaTree quotas_;
  std::vector<Victim> sessions_;
  ReclaimLosses losses_{absl::Seconds(60)};
};

TEST_F(VictimsTest, VictimsThatLoseLeastYield) {
  Have(Session("red", "a", 10, 50));
  Have(Session("red", "b", 10, 20));
  Have(Session("red", "c", 10, 40));
  EXPECT_THAT(Ids(ForQuota(10)), ElementsAre("b"));
  std::vector<std::string> two = Ids(ForQuota(20));
  std::sort(two.begin(), two.end());
  EXPECT_THAT(two, ElementsAre("b", "c"));
}

TEST_F(VictimsTest, NewAndHighPrioritySessionsYieldLast) {
  Have(Session("red", "new", 10, 0, /*spared=*/true));
  Have(Session("red", "urgent", 10, 1, false, 3));
  Have(Session("red", "old", 10, 500));
  EXPECT_THAT(Ids(ForQuota(10)), ElementsAre("old"));
}

TEST_F(VictimsTest, TheGreatestBorrowerYields) {
  Have(Session("red", "a", 10, 0));
  Have(Session("green", "b", 20, 50));
  EXPECT_THAT(Ids(ForQuota(5)), ElementsAre("b"));
}

// The small session alone would not be enough.
TEST_F(VictimsTest, SessionThatIsNotEnoughDoesNotYield) {
  Have(Session("red", "small", 5, 0));
  Have(Session("red", "large", 25, 50));
  EXPECT_THAT(Ids(ForQuota(20)), ElementsAre("large"));
}

TEST_F(VictimsTest, NoSessionYieldsInVain) {
  Have(Session("red", "a", 10, 0));
  // Green has no known sessions.
  quotas_.Take("green", {20});
  EXPECT_THAT(ForQuota(20), IsEmpty());
  // Nothing is reclaimed beyond blue's own quota.
  EXPECT_THAT(ForQuota(31), IsEmpty());
}

TEST_F(VictimsTest, BeyondTheLimitOthersYieldIfThatIsNoWorse) {
  const absl::Duration now = absl::Minutes(5);
  losses_.Add("red", absl::Seconds(50), now);
  Have(Session("red", "a", 20, 20));
  Have(Session("green", "b", 10, 40));
  const auto choose = [&] {
    return ChooseVictims(
        [&](const ReclaimLosses::Allowance& allowance) {
          return ForQuota(10, allowance);
        },
        &losses_, now);
  };
  EXPECT_THAT(Ids(choose().victims), ElementsAre("b"));
  // A session that should be spared does not replace it.
  std::get<0>(sessions_[1].rank) = true;
  const ChosenVictims chosen = choose();
  EXPECT_THAT(chosen.victims, IsEmpty());
  EXPECT_EQ(chosen.put_off, "red");
}

TEST_F(VictimsTest, PutOffReclaimContinuesAfterAMinute) {
  absl::Duration now = absl::Minutes(5);
  Have(Session("red", "a", 30, 20));
  NoteLosses({Session("red", "x", 1, 30), Session("red", "y", 1, 20)}, &losses_,
             now);
  EXPECT_EQ(losses_.Lost("red", now), absl::Seconds(50));
  const auto choose = [&] {
    return ChooseVictims(
        [&](const ReclaimLosses::Allowance& allowance) {
          return ForQuota(10, allowance);
        },
        &losses_, now);
  };
  EXPECT_EQ(choose().put_off, "red");
  now += absl::Minutes(1);
  EXPECT_THAT(Ids(choose().victims), ElementsAre("a"));
}

}  // namespace
}  // namespace djinn::scheduler
