#include "scheduler/fairness/wait_queue.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using ::testing::ElementsAre;
using Ticket = WaitQueue::Ticket;

class WaitQueueTest : public testing::Test {
 protected:
  Ticket Join(const std::string& tenant, int urgency = 0,
              absl::Duration due = absl::InfiniteDuration()) {
    return line_.Join({tenant, urgency, due}, now_);
  }
  std::vector<Ticket> All() { return line_.Front(line_.size(), now_, equal_); }
  size_t PlaceOf(Ticket ticket) {
    return line_.PlacesNow(now_, equal_).at(ticket);
  }
  std::optional<absl::Duration> WaitOf(Ticket ticket) {
    return line_.WaitAt(PlaceOf(ticket), now_);
  }

  WaitQueue line_;
  absl::Duration now_ = absl::Hours(1);
  const WaitQueue::Precedence equal_ = [](const std::string&) {
    return std::vector<double>();
  };
};

TEST_F(WaitQueueTest, EqualRequestsAreInOrderOfArrival) {
  EXPECT_TRUE(line_.empty());
  const Ticket a = Join("red"), b = Join("red"), c = Join("red");
  EXPECT_THAT(All(), ElementsAre(a, b, c));
  EXPECT_THAT(line_.Front(2, now_, equal_), ElementsAre(a, b));
  line_.Leave(a, now_);
  line_.Leave(a, now_);
  EXPECT_THAT(All(), ElementsAre(b, c));
  EXPECT_EQ(PlaceOf(c), 2u);
}

TEST_F(WaitQueueTest, HigherPriorityIsFirst) {
  const Ticket batch = Join("red", 1), soon = Join("blue", 3),
               usual = Join("red", 2);
  EXPECT_THAT(All(), ElementsAre(soon, usual, batch));
  line_.Change(batch, 3, absl::InfiniteDuration());
  // `batch` came first.
  EXPECT_THAT(All(), ElementsAre(batch, soon, usual));
  line_.Change(17, 3, absl::InfiniteDuration());
  EXPECT_EQ(line_.size(), 3u);
}

TEST_F(WaitQueueTest, TurnsInOneClassCountInTheNext) {
  const Ticket red = Join("red", 1), blue = Join("blue", 1),
               soon = Join("red", 2), sooner = Join("red", 3);
  EXPECT_THAT(All(), ElementsAre(sooner, soon, blue, red));
}

TEST_F(WaitQueueTest, EarlierDeadlineIsFirstInItsTenant) {
  const Ticket whenever = Join("red"), late = Join("red", 0, absl::Hours(3)),
               soon = Join("red", 0, absl::Hours(2));
  EXPECT_THAT(All(), ElementsAre(soon, late, whenever));
  line_.Change(whenever, 0, absl::Hours(1));
  EXPECT_THAT(All(), ElementsAre(whenever, soon, late));
}

TEST_F(WaitQueueTest, ADueTimeDoesNotPassOtherTenants) {
  line_.Charge("red", 5, now_);
  Join("red", 0, absl::Hours(2));
  const Ticket blue = Join("blue");
  EXPECT_EQ(All().front(), blue);
}

TEST_F(WaitQueueTest, ReturningRequestPrecedesItsTenantsClass) {
  const Ticket usual = Join("red"), soon = Join("red", 0, absl::Hours(2)),
               urgent = Join("red", 1), blue = Join("blue");
  line_.Charge("blue", 0.5, now_);
  const Ticket again = line_.Join({.tenant = "red", .returns = true}, now_);
  EXPECT_THAT(All(), ElementsAre(urgent, blue, again, soon, usual));
  // Change() moves a request from any position.
  line_.Change(again, 1, absl::Hours(3));
  EXPECT_THAT(All(), ElementsAre(again, urgent, blue, soon, usual));
}

TEST_F(WaitQueueTest, TenantsTakeTurns) {
  std::vector<Ticket> red;
  for (int i = 0; i < 4; ++i) red.push_back(Join("red"));
  const Ticket first = Join("blue"), second = Join("blue");
  EXPECT_THAT(All(),
              ElementsAre(red[0], first, red[1], second, red[2], red[3]));
}

TEST_F(WaitQueueTest, AWeightIsAShareOfTheTurns) {
  line_.SetWeight("red", 3);
  std::vector<Ticket> red, blue;
  for (int i = 0; i < 6; ++i) red.push_back(Join("red"));
  for (int i = 0; i < 2; ++i) blue.push_back(Join("blue"));
  EXPECT_THAT(line_.Front(5, now_, equal_),
              ElementsAre(red[0], blue[0], red[1], red[2], red[3]));
}

TEST_F(WaitQueueTest, PastUseDelaysATenantAndDecays) {
  line_.Charge("red", 8, now_);
  const Ticket red = Join("red");
  std::vector<Ticket> blue;
  for (int i = 0; i < 5; ++i) blue.push_back(Join("blue"));
  EXPECT_EQ(PlaceOf(red), 6u);
  // A quarter of the use is left, which is two turns.
  now_ += 2 * WaitQueue::kHalfLife;
  EXPECT_EQ(PlaceOf(red), 3u);
  line_.Charge("red", 2, now_);
  EXPECT_EQ(PlaceOf(red), 5u);
}

TEST_F(WaitQueueTest, CallersPrecedenceCountsBeforeCharges) {
  line_.Charge("red", 8, now_);
  const Ticket blue = Join("blue"), red = Join("red");
  const auto precedence = [](const std::string& tenant) {
    return std::vector<double>{tenant == "blue" ? 0.5 : 0.25};
  };
  EXPECT_THAT(line_.Front(2, now_, precedence), ElementsAre(red, blue));
}

TEST_F(WaitQueueTest, AWaitIsGuessedFromWhoWasServed) {
  const Ticket a = Join("red"), b = Join("red"), c = Join("red");
  now_ += absl::Seconds(20);
  // A request that gives up does not count as served.
  line_.Leave(c, now_);
  EXPECT_EQ(WaitOf(b), std::nullopt);
  line_.Serve(a, now_);
  line_.Serve(a, now_);
  EXPECT_EQ(WaitOf(b), absl::Seconds(20));
  const Ticket d = Join("red");
  EXPECT_EQ(WaitOf(d), absl::Seconds(40));
  // The predicted wait grows when no request is served for longer than before.
  now_ += absl::Seconds(20);
  EXPECT_GT(*WaitOf(b), absl::Seconds(39));
  EXPECT_LT(*WaitOf(b), absl::Seconds(41));
  // Time without waiting requests does not count.
  line_.Serve(b, now_);
  line_.Serve(d, now_);
  now_ += absl::Minutes(10);
  const Ticket e = Join("red");
  EXPECT_NEAR(absl::ToDoubleSeconds(*WaitOf(e)), 40. / 3, 0.2);
  // Old services no longer allow a prediction.
  now_ += absl::Minutes(40);
  EXPECT_EQ(WaitOf(e), std::nullopt);
}

TEST_F(WaitQueueTest, WhereEverybodyStandsIsWorkedOutOnce) {
  std::vector<Ticket> red, blue;
  for (int i = 0; i < 500; ++i) {
    red.push_back(Join("red"));
    blue.push_back(Join("blue"));
  }
  int asked = 0;
  const auto places = line_.PlacesNow(now_, [&](const std::string& tenant) {
    ++asked;
    return std::vector<double>{tenant == "blue" ? 0. : 1.};
  });
  // Precedence is asked once for each tenant.
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(places.size(), 1000u);
  for (size_t i = 0; i < 500; ++i) {
    EXPECT_EQ(places.at(blue[i]), i + 1);
    EXPECT_EQ(places.at(red[i]), i + 501);
  }
}

TEST_F(WaitQueueTest, EverybodyHasATurn) {
  std::vector<Ticket> all;
  for (int i = 0; i < 5; ++i) all.push_back(Join("red", i));
  EXPECT_THAT(line_.InTurn(2), ElementsAre(all[0], all[1]));
  EXPECT_THAT(line_.InTurn(2), ElementsAre(all[2], all[3]));
  line_.Leave(all[4], now_);
  EXPECT_THAT(line_.InTurn(2), ElementsAre(all[0], all[1]));
  EXPECT_THAT(line_.InTurn(9), ElementsAre(all[2], all[3], all[0], all[1]));
}

TEST_F(WaitQueueTest, ThoseInFrontAreTriedAndOthersInTurn) {
  constexpr size_t kHalf = WaitQueue::kMaxTries / 2;
  const auto in_vain = [&] {
    return line_.Try(now_, equal_, [](Ticket) { return false; });
  };
  std::vector<Ticket> all;
  for (size_t i = 0; i < kHalf; ++i) all.push_back(Join("red"));
  EXPECT_EQ(in_vain(), all);
  // No later request has its turn yet, and those in front are not tried twice.
  for (size_t i = 0; i < 3 * kHalf; ++i) all.push_back(Join("red"));
  const auto stretch = [&](size_t begin, size_t end) {
    std::vector<Ticket> tries(all.begin(), all.begin() + kHalf);
    tries.insert(tries.end(), all.begin() + static_cast<ptrdiff_t>(begin),
                 all.begin() + static_cast<ptrdiff_t>(end));
    return tries;
  };
  EXPECT_EQ(in_vain(), stretch(0, 0));
  EXPECT_EQ(in_vain(), stretch(kHalf, 2 * kHalf));
  EXPECT_EQ(in_vain(), stretch(2 * kHalf, 3 * kHalf));
  EXPECT_EQ(in_vain(), stretch(3 * kHalf, 4 * kHalf));
  EXPECT_EQ(in_vain(), stretch(0, 0));
}

// Red asks first, and for more than is available at a time.
TEST_F(WaitQueueTest, OthersAreNotTriedWhileTheFrontFindsRoom) {
  constexpr int kHalf = WaitQueue::kMaxTries / 2;
  std::vector<Ticket> red, blue;
  for (int i = 0; i < 4 * kHalf; ++i) red.push_back(Join("red"));
  for (int i = 0; i < 2 * kHalf; ++i) blue.push_back(Join("blue"));
  line_.SetWeight("blue", 7);
  int of_blue = 0, in_vain = 0;
  const auto place = [&](Ticket ticket) {
    if (in_vain > 0) return --in_vain, false;
    line_.Serve(ticket, now_);
    const bool is_blue = ticket >= blue.front();
    line_.Charge(is_blue ? "blue" : "red", WaitQueue::kTurn, now_);
    of_blue += is_blue;
    return true;
  };
  EXPECT_EQ(line_.Try(now_, equal_, place).size(), size_t{kHalf});
  EXPECT_EQ(of_blue, kHalf * 7 / 8);
  // Three requests find nothing. Some others may be tried in their place, in
  // order of arrival, because some in front found something.
  in_vain = 3;
  const size_t tried = line_.Try(now_, equal_, place).size();
  EXPECT_GT(tried, size_t{kHalf});
  EXPECT_LE(tried, size_t{kHalf + 3});
}

}  // namespace
}  // namespace djinn::scheduler
