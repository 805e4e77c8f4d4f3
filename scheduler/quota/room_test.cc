#include "scheduler/quota/room.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Red borrows all that it has from blue.
class RoomTest : public testing::Test {
 protected:
  RoomTest() {
    quotas_.Configure(
        {{.tenant = "red", .cohort = "lab", .quotas = {Quota{.nominal = 0}}},
         {.tenant = "blue",
          .cohort = "lab",
          .quotas = {Quota{.nominal = 9000}}}});
    request_.asked_bytes = 800;
    for (const char* id : {"w0", "w1"}) {
      WorkerFacts facts;
      facts.id = id;
      facts.memory_bytes = 1000;
      facts.available_bytes = 100;
      fleet_.Put(facts);
    }
  }
  // Adds a session of red that holds `bytes` at the worker, and some quota.
  void Have(const std::string& id, const std::string& worker, uint64_t bytes,
            int lost, uint64_t contents = 0) {
    Victim victim;
    victim.tenant = "red";
    victim.session_id = id;
    victim.worker_id = worker;
    victim.lost = absl::Seconds(lost);
    victim.rank = {false, 2, victim.lost, absl::Seconds(100)};
    victim.quota = {10};
    victim.bytes = bytes;
    victim.content_bytes = contents;
    quotas_.Take("red", victim.quota);
    there_[worker].push_back(victim);
  }
  std::vector<std::string> Search(ReclaimLosses::Allowance allowance = {}) {
    const int64_t before = quotas_.Used("red", Resource::kMemoryBytes);
    std::vector<std::string> ids;
    for (const Victim& victim : VictimsAtOneWorker(
             "blue", asked_, request_, there_, fleet_, factors_,
             [&](const std::string& worker) {
               return worker == "w0" ? shared_ : 0;
             },
             allowance, &quotas_)) {
      ids.push_back(victim.session_id);
    }
    EXPECT_EQ(quotas_.Used("red", Resource::kMemoryBytes), before);
    return ids;
  }

  QuotaTree quotas_;
  Fleet fleet_;
  semantics::CostFactors factors_;
  Request request_;
  // Quota of blue.
  Amounts asked_ = {1000};
  VictimsByWorker there_;
  uint64_t shared_ = 0;
};

TEST_F(RoomTest, TheFewestAtOneWorkerYield) {
  Have("a", "w0", 350, 1);
  Have("b", "w0", 350, 1);
  Have("c", "w1", 700, 50);
  EXPECT_THAT(Search(), ElementsAre("c"));
}

TEST_F(RoomTest, CheapestOfEqualVictimsYields) {
  Have("a", "w0", 700, 60);
  Have("b", "w1", 700, 50);
  EXPECT_THAT(Search(), ElementsAre("b"));
}

TEST_F(RoomTest, UnneededSmallVictimStays) {
  Have("a", "w0", 50, 1);
  Have("b", "w0", 750, 50);
  EXPECT_THAT(Search(), ElementsAre("b"));
}

TEST_F(RoomTest, SharedContentsDoNotBecomeFree) {
  Have("a", "w0", 0, 1, /*contents=*/700);
  EXPECT_THAT(Search(), ElementsAre("a"));
  shared_ = 100;
  EXPECT_THAT(Search(), IsEmpty());
}

TEST_F(RoomTest, NoSessionYieldsWhereTheRequestWouldNotFit) {
  Have("a", "w0", 699, 1);
  Have("b", "w1", 699, 1);
  EXPECT_THAT(Search(), IsEmpty());
  Have("c", "w2", 5000, 1);
  EXPECT_THAT(Search(), IsEmpty());
  request_.asked_bytes = 1001;
  Have("d", "w0", 5000, 1);
  EXPECT_THAT(Search(), IsEmpty());
}

TEST_F(RoomTest, NoTenantReturnsMoreThanItBorrows) {
  Have("a", "w0", 350, 1);
  Have("b", "w0", 350, 1);
  quotas_.Configure(
      {{.tenant = "red", .cohort = "lab", .quotas = {Quota{.nominal = 10}}},
       {.tenant = "blue",
        .cohort = "lab",
        .quotas = {Quota{.nominal = 9000}}}});
  EXPECT_THAT(Search(), IsEmpty());
}

TEST_F(RoomTest, TenantTakesNoMoreOfItsOwnThanItAsks) {
  Have("a", "w0", 700, 1);
  asked_ = {699};
  EXPECT_THAT(Search(), IsEmpty());
  asked_ = {700};
  EXPECT_THAT(Search(), ElementsAre("a"));
}

TEST_F(RoomTest, LossAllowanceLimitsTheSearch) {
  Have("a", "w0", 700, 40);
  ReclaimLosses losses(absl::Seconds(60));
  losses.Add("red", absl::Seconds(30), absl::Minutes(1));
  EXPECT_THAT(Search(losses.ForOne(absl::Minutes(1))), IsEmpty());
  EXPECT_THAT(Search(losses.ForOne(absl::Minutes(2))), ElementsAre("a"));
}

TEST(MemoryTest, MessagesTakeNoRoom) {
  Amounts asked;
  asked.fill(7);
  const Amounts memory = MemoryOf(asked);
  EXPECT_EQ(memory[static_cast<size_t>(Resource::kOutstandingMessages)], 0);
  EXPECT_EQ(memory[static_cast<size_t>(Resource::kMemoryBytes)], 7);
}

}  // namespace
}  // namespace djinn::scheduler
