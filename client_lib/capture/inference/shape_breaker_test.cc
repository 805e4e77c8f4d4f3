#include "client_lib/capture/inference/shape_breaker.h"

#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Milliseconds(500);

class ShapeBreakerTest : public testing::Test {
 protected:
  // Makes one attempt that takes `took`.
  void Try(bool found, absl::Duration took = absl::ZeroDuration(),
           uint32_t op = 1) {
    breaker_.Try(op, "aten::odd", [&] {
      clock_.Advance(took);
      return found;
    });
  }
  void TryOften(int times, bool found) {
    for (int i = 0; i < times; ++i) Try(found);
  }

  FakeClock clock_;
  ShapeBreaker breaker_{&clock_, kLimit, 10};
};

TEST_F(ShapeBreakerTest, TenConsecutiveFailuresDisableTheOperator) {
  testing::internal::CaptureStderr();
  TryOften(9, false);
  EXPECT_FALSE(breaker_.IsOpen(1));
  Try(false);
  EXPECT_TRUE(breaker_.IsOpen(1));
  EXPECT_FALSE(breaker_.IsOpen(2));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("op=aten::odd failures=10"));
}

TEST_F(ShapeBreakerTest, SuccessResetsTheCount) {
  TryOften(9, false);
  Try(true, kLimit);
  TryOften(9, false);
  EXPECT_FALSE(breaker_.IsOpen(1));
}

TEST_F(ShapeBreakerTest, SlowInferenceIsAFailure) {
  for (int i = 0; i < 10; ++i) Try(true, kLimit + absl::Milliseconds(1));
  EXPECT_TRUE(breaker_.IsOpen(1));
}

TEST_F(ShapeBreakerTest, ExceptionIsNoFailure) {
  TryOften(9, false);
  EXPECT_THROW(breaker_.Try(1, "aten::odd",
                            []() -> bool { throw std::invalid_argument(""); }),
               std::invalid_argument);
  EXPECT_FALSE(breaker_.IsOpen(1));
  Try(false);
  EXPECT_TRUE(breaker_.IsOpen(1));
}

TEST_F(ShapeBreakerTest, NewLimitsEnableTheOperator) {
  TryOften(10, false);
  breaker_.SetLimits(kLimit, 2);
  EXPECT_FALSE(breaker_.IsOpen(1));
  TryOften(2, false);
  EXPECT_TRUE(breaker_.IsOpen(1));
}

}  // namespace
}  // namespace djinn::capture
