#include "coordinator/ctl/table.h"

#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

TEST(TableTest, ColumnsAreAligned) {
  EXPECT_EQ(FormatTable({{"NAME", "N"}, {"a", "1"}, {"longer", "22"}}),
            "NAME    N\n"
            "a       1\n"
            "longer  22\n");
}

TEST(TableTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0B");
  EXPECT_EQ(FormatBytes(999), "999B");
  EXPECT_EQ(FormatBytes(90'900'000), "90.9MB");
  EXPECT_EQ(FormatBytes(999'999), "1.0MB");
}

TEST(TableTest, ShortDurations) {
  const auto text = [](int64_t seconds, int32_t nanos) {
    google::protobuf::Duration duration;
    duration.set_seconds(seconds);
    duration.set_nanos(nanos);
    return FormatShortDuration(duration);
  };
  EXPECT_EQ(text(0, 0), "0");
  EXPECT_EQ(text(0, 12'345), "12.3us");
  EXPECT_EQ(text(0, 1'614'999), "1.61ms");
  EXPECT_EQ(text(1, 611'900'000), "1.611s");
  EXPECT_EQ(text(63, 0), "1m3s");
}

template <typename Info>
void ExpectSameWidth() {
  EXPECT_EQ(Header(Info()).size(), Cells(Info()).size());
}

TEST(TableTest, EveryHeaderHasItsCells) {
  ExpectSameWidth<v1::WorkerInfo>();
  ExpectSameWidth<v1::SessionInfo>();
  ExpectSameWidth<v1::TenantInfo>();
  ExpectSameWidth<v1::LeaseInfo>();
  ExpectSameWidth<v1::GraphInfo>();
  ExpectSameWidth<v1::RunInfo>();
}

}  // namespace
}  // namespace djinn::ctl
