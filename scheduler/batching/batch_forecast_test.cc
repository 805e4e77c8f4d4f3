#include "scheduler/batching/batch_forecast.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

constexpr BatchForecast::Place kFirst = 1;
constexpr BatchForecast::Place kSecond = 2;

bool MayCome(uint64_t) { return true; }

absl::Duration Ms(int64_t milliseconds) {
  return absl::Milliseconds(milliseconds);
}

class BatchForecastTest : public testing::Test {
 protected:
  BatchForecastTest() {
    forecast_.NoteWorth(kFirst, Ms(50));
    forecast_.NoteWorth(kSecond, Ms(50));
  }

  // Plays rounds of session `key`. A round is a 10 ms run at kFirst, at once a
  // 10 ms run at kSecond, and then `pause`.
  void GoRound(uint64_t key, int rounds, absl::Duration pause = Ms(4)) {
    for (int i = 0; i < rounds; ++i) {
      Run(key, kFirst);
      Run(key, kSecond);
      now_ += pause;
    }
  }
  void Run(uint64_t key, BatchForecast::Place place) {
    forecast_.Came(key, place, now_);
    now_ += Ms(10);
    forecast_.Ended(key, now_);
  }
  // Sets the clock back to the begin of the last round's pause.
  void TakePauseBack(absl::Duration pause = Ms(4)) { now_ -= pause; }

  absl::Duration Until(BatchForecast::Place place) {
    return forecast_.WaitUntil(place, now_, now_, MayCome);
  }

  BatchForecast forecast_;
  absl::Duration now_ = absl::Seconds(1);
};

TEST_F(BatchForecastTest, NoSessionIsExpectedAtFirst) {
  EXPECT_LE(Until(kFirst), now_);
  EXPECT_FALSE(forecast_.NextOf(7).has_value());
}

TEST_F(BatchForecastTest, RegularSessionIsExpectedAfterItsPauseAndSlack) {
  GoRound(7, 3);
  TakePauseBack();
  EXPECT_EQ(forecast_.NextOf(7), kFirst);
  EXPECT_EQ(Until(kFirst),
            now_ + Ms(5) + BatchForecast::kSlack);  // 1.25 times 4 ms
  EXPECT_LE(Until(kSecond), now_);
}

TEST_F(BatchForecastTest, OnceIsNoRule) {
  GoRound(7, 2);
  TakePauseBack();
  EXPECT_FALSE(forecast_.NextOf(7).has_value());
  EXPECT_LE(Until(kFirst), now_);
}

TEST_F(BatchForecastTest, EachPlaceHasItsOwnPause) {
  GoRound(7, 3);
  forecast_.Came(7, kFirst, now_);
  now_ += Ms(10);
  forecast_.Ended(7, now_);
  EXPECT_EQ(forecast_.NextOf(7), kSecond);
  EXPECT_EQ(Until(kSecond), now_ + BatchForecast::kSlack);
  EXPECT_LE(Until(kFirst), now_);
}

TEST_F(BatchForecastTest, RunningSessionIsNotExpected) {
  GoRound(7, 3);
  forecast_.Came(7, kFirst, now_);
  EXPECT_LE(Until(kFirst), now_);
  EXPECT_LE(Until(kSecond), now_);
}

TEST_F(BatchForecastTest, TheLongestOfTheLastPausesCounts) {
  GoRound(7, 3);
  GoRound(7, 1, Ms(8));
  GoRound(7, 2);
  TakePauseBack();
  EXPECT_EQ(Until(kFirst), now_ + Ms(10) + BatchForecast::kSlack);
  now_ += Ms(4);
  GoRound(7, 4);
  TakePauseBack();
  EXPECT_EQ(Until(kFirst), now_ + Ms(5) + BatchForecast::kSlack);
}

TEST_F(BatchForecastTest, StoppedSessionIsForgottenWhenItWasDue) {
  GoRound(7, 3);
  TakePauseBack();
  const absl::Duration since = now_;
  const absl::Duration due = Until(kFirst);
  const auto until = [&](absl::Duration now) {
    return forecast_.WaitUntil(kFirst, since, now, MayCome);
  };
  EXPECT_EQ(until(due - absl::Nanoseconds(1)), due);
  EXPECT_LE(until(due), due);
  // The same holds for the first look, and for an earlier clock.
  EXPECT_LE(Until(kFirst), now_);
  // The session comes again, but its pause exceeds the worth of the place.
  now_ += absl::Minutes(1);
  GoRound(7, 1);
  TakePauseBack();
  EXPECT_LE(Until(kFirst), now_);
}

TEST_F(BatchForecastTest, SessionAtAnotherPlaceIsIrregular) {
  GoRound(7, 3);
  forecast_.Came(7, kSecond, now_);
  forecast_.Ended(7, now_);
  EXPECT_FALSE(forecast_.NextOf(7).has_value());
  EXPECT_LE(Until(kFirst), now_);
}

TEST_F(BatchForecastTest, OtherTurnsArePartOfThePause) {
  // Each second run is followed by a read, in a turn of its own.
  const auto go_round = [&] {
    Run(7, kFirst);
    Run(7, kSecond);
    now_ += Ms(1);
    forecast_.Ended(7, now_);
    now_ += Ms(3);
  };
  for (int i = 0; i < 3; ++i) go_round();
  TakePauseBack();
  const absl::Duration due = now_ + Ms(5) + BatchForecast::kSlack;
  EXPECT_EQ(Until(kFirst), due);
  now_ += Ms(1);
  forecast_.Ended(7, now_);
  EXPECT_EQ(Until(kFirst), due);
}

TEST_F(BatchForecastTest, TurnsWithoutARunPutNothingOff) {
  GoRound(7, 3);
  TakePauseBack();
  const absl::Duration due = Until(kFirst);
  for (int i = 0; i < 20; ++i) {
    now_ = due - absl::Nanoseconds(1) + Ms(4) * i;
    forecast_.Ended(7, now_);
    EXPECT_LE(Until(kFirst), std::max(due, now_));
  }
  // The same holds if WaitUntil() was not called meanwhile.
  GoRound(7, 5);
  forecast_.Ended(7, now_ + Ms(4));
  EXPECT_LE(forecast_.WaitUntil(kFirst, now_ + Ms(4), now_ + Ms(4), MayCome),
            now_ + Ms(4));
  // The session is expected again once it has come.
  GoRound(7, 1);
  TakePauseBack();
  EXPECT_GT(Until(kFirst), now_);
}

TEST_F(BatchForecastTest, WaitIsNoLongerThanItsWorth) {
  GoRound(7, 3);
  TakePauseBack();
  const absl::Duration pause = Ms(5) + BatchForecast::kSlack;
  forecast_.NoteWorth(kFirst, pause);
  EXPECT_EQ(Until(kFirst), now_ + pause);
  // Time that has already passed counts.
  EXPECT_LE(forecast_.WaitUntil(kFirst, now_ - Ms(1), now_, MayCome), now_);
  forecast_.NoteWorth(kFirst, pause - absl::Nanoseconds(1));
  EXPECT_LE(Until(kFirst), now_);
}

TEST_F(BatchForecastTest, OneLongStepDoesNotLengthenTheWait) {
  GoRound(7, 3);
  TakePauseBack();
  forecast_.NoteWorth(kFirst, Ms(1));
  forecast_.NoteWorth(kFirst, Ms(50));
  EXPECT_LE(Until(kFirst), now_);
  // Long steps count once all of the last steps were long.
  for (size_t i = 0; i < BatchForecast::kWorths; ++i) {
    forecast_.NoteWorth(kFirst, Ms(50));
  }
  EXPECT_GT(Until(kFirst), now_);
}

TEST_F(BatchForecastTest, APlaceOfUnknownWorthIsNotWaitedAt) {
  forecast_ = BatchForecast();
  GoRound(7, 3);
  TakePauseBack();
  EXPECT_LE(Until(kFirst), now_);
}

TEST_F(BatchForecastTest, TheLastOfThoseWhoMayComeCounts) {
  for (const uint64_t key : {5, 6, 7}) {
    const absl::Duration pause = Ms(static_cast<int64_t>(key));
    // All sessions end at one time.
    now_ = absl::Seconds(2) - 3 * (Ms(20) + pause) + pause;
    GoRound(key, 3, pause);
    TakePauseBack(pause);
  }
  const auto until = [&](uint64_t last) {
    return forecast_.WaitUntil(kFirst, now_, now_,
                               [=](uint64_t key) { return key <= last; });
  };
  EXPECT_EQ(until(7), now_ + 1.25 * Ms(7) + BatchForecast::kSlack);
  EXPECT_EQ(until(6), now_ + 1.25 * Ms(6) + BatchForecast::kSlack);
  EXPECT_LE(until(4), now_);
}

TEST_F(BatchForecastTest, ForgottenSessionIsNotExpected) {
  GoRound(7, 3);
  TakePauseBack();
  forecast_.Forget(7);
  EXPECT_LE(Until(kFirst), now_);
  EXPECT_FALSE(forecast_.NextOf(7).has_value());
  forecast_.Forget(7);
}

TEST_F(BatchForecastTest, SomePlacesOfASessionAreRemembered) {
  const auto most =
      static_cast<BatchForecast::Place>(BatchForecast::kPlacesOfSession);
  const auto go_round = [&](BatchForecast::Place places) {
    for (int i = 0; i < 4; ++i) {
      for (BatchForecast::Place place = 0; place < places; ++place) {
        Run(7, place);
      }
    }
  };
  go_round(most);
  EXPECT_EQ(forecast_.NextOf(7), 0u);
  go_round(most + 1);
  EXPECT_FALSE(forecast_.NextOf(7).has_value());
}

}  // namespace
}  // namespace djinn::scheduler
