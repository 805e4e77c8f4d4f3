#include "common/transport/shared_memory/spin_wait.h"

#include "gtest/gtest.h"

namespace djinn {
namespace {

class SpinWaitTest : public testing::Test {
 protected:
  // Polls every microsecond until something comes after `wait`. Returns how
  // long it polled before it slept, or `wait` if it did not sleep.
  absl::Duration Wait(absl::Duration wait) {
    spin_.Begin();
    const absl::Duration start = now_;
    while (now_ < start + wait) {
      if (!spin_.Nothing(now_)) {
        const absl::Duration looked = now_ - start;
        now_ = start + wait;
        spin_.End(now_);
        return looked;
      }
      now_ += absl::Microseconds(1);
    }
    spin_.End(now_);
    return wait;
  }

  const absl::Duration short_ = SpinWait::kLongest / 2;
  const absl::Duration long_ = SpinWait::kLongest * 2;
  SpinWait spin_;
  absl::Duration now_ = absl::Seconds(1);
};

TEST_F(SpinWaitTest, SleepsAtFirst) {
  EXPECT_EQ(Wait(short_), absl::ZeroDuration());
}

TEST_F(SpinWaitTest, LooksWhereTheLastWaitWasShort) {
  Wait(short_);
  EXPECT_EQ(Wait(short_), short_);
  EXPECT_EQ(Wait(short_), short_);
}

TEST_F(SpinWaitTest, LooksOnceInVainWhereWaitsBecomeLong) {
  Wait(short_);
  EXPECT_EQ(Wait(long_), SpinWait::kLongest);
  EXPECT_EQ(Wait(long_), absl::ZeroDuration());
  EXPECT_EQ(Wait(short_), absl::ZeroDuration());
  EXPECT_EQ(Wait(short_), short_);
}

TEST_F(SpinWaitTest, LearnsNothingFromWhatWasThereAtOnce) {
  Wait(short_);
  spin_.Begin();
  spin_.End(now_);
  EXPECT_EQ(Wait(short_), short_);
  Wait(long_);
  spin_.Begin();
  spin_.End(now_);
  EXPECT_EQ(Wait(short_), absl::ZeroDuration());
}

}  // namespace
}  // namespace djinn
