#include "gpu_worker/pull/link_rates.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class LinkRatesTest : public testing::Test {
 protected:
  uint64_t Add(uint64_t bytes, absl::Duration took) {
    return rates_.Add("w1", bytes, took).bytes_per_second();
  }

  FakeClock clock_;
  LinkRates rates_{&clock_};
};

TEST_F(LinkRatesTest, TheNewestMeasurementsCountMost) {
  EXPECT_EQ(Add(1000, absl::Seconds(1)), 1000u);
  // The new measurement counts half: 0.5 of 1 ms and of 9 ms per byte.
  EXPECT_EQ(Add(1000, absl::Seconds(9)), 200u);
  EXPECT_EQ(Add(1000, absl::Seconds(5)), 200u);
  EXPECT_EQ(rates_.Known().size(), 1u);
}

TEST_F(LinkRatesTest, ALinkThatSlowsDownIsSlowAtOnce) {
  EXPECT_EQ(Add(1'000'000'000, absl::Seconds(1)), 1'000'000'000u);
  EXPECT_LT(Add(1'000'000, absl::Seconds(1)), 2'000'001u);
}

TEST_F(LinkRatesTest, OldMeasurementIsReplacedAndForgotten) {
  Add(1000, absl::Seconds(1));
  clock_.Advance(LinkRates::kFresh + absl::Seconds(1));
  EXPECT_EQ(Add(1000, absl::Seconds(2)), 500u);
  clock_.Advance(LinkRates::kKept);
  ASSERT_EQ(rates_.Known().size(), 1u);
  EXPECT_EQ(rates_.Known()[0].worker_id(), "w1");
  EXPECT_EQ(rates_.Known()[0].bytes_per_second(), 500u);
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(rates_.Known().empty());
}

TEST_F(LinkRatesTest, WorkersAreBounded) {
  for (size_t i = 0; i < LinkRates::kMaxLinks; ++i) {
    rates_.Add(absl::StrCat("w", i), 1000, absl::Seconds(1));
    clock_.Advance(absl::Milliseconds(1));
  }
  // After this, w0 is not the oldest any more.
  rates_.Add("w0", 1000, absl::Seconds(1));
  clock_.Advance(absl::Milliseconds(1));
  rates_.Add("other", 1000, absl::Seconds(1));
  EXPECT_EQ(rates_.Known().size(), LinkRates::kMaxLinks);
  for (const v1::PeerLink& link : rates_.Known()) {
    EXPECT_NE(link.worker_id(), "w1");
  }
  EXPECT_EQ(rates_.Known()[0].worker_id(), "other");
  EXPECT_EQ(rates_.Known()[1].worker_id(), "w0");
}

TEST_F(LinkRatesTest, RateIsBounded) {
  EXPECT_EQ(Add(uint64_t{1} << 60, absl::Nanoseconds(1)),
            1'000'000'000'000'000);
  EXPECT_EQ(rates_.Add("w2", 1, absl::Hours(1)).bytes_per_second(), 1u);
}

}  // namespace
}  // namespace djinn::worker
