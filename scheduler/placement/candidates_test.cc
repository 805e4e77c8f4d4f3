#include "scheduler/placement/candidates.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

WorkerFacts Named(int i) {
  WorkerFacts facts;
  facts.id = "w" + std::to_string(i);
  return facts;
}

class CandidatesTest : public testing::Test {
 protected:
  CandidatesTest() {
    for (int i = 0; i < 100; ++i) fleet_.Put(Named(i));
  }
  Fleet fleet_;
  Randomness random_;
};

TEST_F(CandidatesTest, YieldsEachWorkerOnceAndHoldersFirst) {
  fleet_.SetHeld("w3", {1, 2});
  fleet_.SetHeld("w5", {2});
  Request request;
  request.state = {{1, 10}, {2, 20}};
  CandidateWalk walk(&fleet_, request, &random_);
  EXPECT_EQ(walk.WorthLooking(8), 10u);
  std::set<std::string> ids;
  for (CandidateWalk::Candidate c = walk.Next(); c.member != nullptr;
       c = walk.Next()) {
    EXPECT_EQ(c.first, ids.size() < 2);
    EXPECT_TRUE(ids.insert(c.member->facts.id).second);
  }
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_EQ(walk.Next().member, nullptr);
}

TEST_F(CandidatesTest, HoldersOfALargePieceComeBeforeOthers) {
  for (int i = 0; i < 60; ++i) {
    fleet_.SetHeld(Named(i).id, {StateKey{i < 50 ? 1u : 2u}});
  }
  Request request;
  request.state = {{1, 10}, {2, 20}};
  CandidateWalk walk(&fleet_, request, &random_);
  EXPECT_EQ(walk.WorthLooking(0), CandidateWalk::kMaxHolders);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(walk.Next().member->held.contains(2));
  }
  EXPECT_TRUE(walk.Next().member->held.contains(1));
}

// Each of the 100 comes first about equally often: 300 times of 30,000, with a
// standard deviation of 17.
TEST_F(CandidatesTest, DrawsEvenly) {
  std::map<std::string, int> first;
  for (int i = 0; i < 30'000; ++i) {
    CandidateWalk walk(&fleet_, {}, &random_);
    ++first[walk.Next().member->facts.id];
  }
  EXPECT_EQ(first.size(), 100u);
  for (const auto& [id, count] : first) EXPECT_NEAR(count, 300, 90) << id;
}

TEST_F(CandidatesTest, TheSameSeedDrawsTheSame) {
  Randomness again;
  CandidateWalk one(&fleet_, {}, &random_);
  CandidateWalk two(&fleet_, {}, &again);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.Next().member, two.Next().member);
}

}  // namespace
}  // namespace djinn::scheduler
