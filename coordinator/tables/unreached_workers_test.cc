#include "coordinator/tables/unreached_workers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kStart = absl::Hours(1);

TEST(UnreachedWorkersTest, AReportCountsForItsTenantAlone) {
  UnreachedWorkers unreached;
  unreached.Add("w0", "red", "r1", kStart);
  EXPECT_THAT(unreached.AvoidedBy("red", "r1", kStart),
              UnorderedElementsAre("w0"));
  EXPECT_THAT(unreached.AvoidedBy("red", "r2", kStart),
              UnorderedElementsAre("w0"));
  // However many sessions of the tenant say so.
  for (int i = 0; i < 100; ++i) {
    unreached.Add("w0", "red", absl::StrCat("more", i), kStart);
  }
  EXPECT_THAT(unreached.AvoidedBy("blue", "b1", kStart), IsEmpty());
}

TEST(UnreachedWorkersTest, ReportsOfTwoTenantsCountForEveryone) {
  UnreachedWorkers unreached;
  unreached.Add("w0", "red", "r1", kStart);
  unreached.Add("w0", "blue", "b1", kStart);
  unreached.Add("w1", "blue", "b1", kStart);
  EXPECT_THAT(unreached.AvoidedBy("green", "g1", kStart),
              UnorderedElementsAre("w0"));
  EXPECT_EQ(unreached.Summarize("w0", kStart).tenants, 2u);
  EXPECT_EQ(unreached.Summarize("w0", kStart).sessions, 2u);
  EXPECT_EQ(unreached.Summarize("w2", kStart).sessions, 0u);
}

TEST(UnreachedWorkersTest, AReportEndsWithTime) {
  UnreachedWorkers unreached;
  unreached.Add("w0", "red", "r1", kStart);
  unreached.Add("w0", "blue", "b1", kStart + absl::Minutes(1));
  const absl::Duration later = kStart + UnreachedWorkers::kReportLife;
  EXPECT_THAT(unreached.AvoidedBy("red", "r1", later), IsEmpty());
  EXPECT_THAT(unreached.AvoidedBy("green", "g1", later), IsEmpty());
  EXPECT_THAT(unreached.AvoidedBy("blue", "b2", later),
              UnorderedElementsAre("w0"));
  unreached.Expire(later + absl::Minutes(1));
  EXPECT_EQ(unreached.Summarize("w0", kStart).sessions, 0u);
}

TEST(UnreachedWorkersTest, AClientThatGetsThroughSpeaksForItsTenant) {
  UnreachedWorkers unreached;
  unreached.Add("w0", "red", "r1", kStart);
  unreached.Add("w0", "blue", "b1", kStart);
  unreached.Reached("w0", "red");
  EXPECT_THAT(unreached.AvoidedBy("green", "g1", kStart), IsEmpty());
  EXPECT_THAT(unreached.AvoidedBy("red", "r2", kStart), IsEmpty());
  // The reporter itself still has no way to the worker.
  EXPECT_THAT(unreached.AvoidedBy("red", "r1", kStart),
              UnorderedElementsAre("w0"));
  EXPECT_THAT(unreached.AvoidedBy("blue", "b2", kStart),
              UnorderedElementsAre("w0"));
  // A later report counts again.
  unreached.Add("w0", "red", "r2", kStart);
  EXPECT_THAT(unreached.AvoidedBy("green", "g1", kStart),
              UnorderedElementsAre("w0"));
}

TEST(UnreachedWorkersTest, ARestartedWorkerIsForgotten) {
  UnreachedWorkers unreached;
  unreached.Add("w0", "red", "r1", kStart);
  unreached.Forget("w0");
  EXPECT_THAT(unreached.AvoidedBy("red", "r1", kStart), IsEmpty());
}

TEST(UnreachedWorkersTest, TheOldestOfTooManyReportsGoes) {
  UnreachedWorkers unreached;
  for (size_t i = 0; i <= UnreachedWorkers::kMaxReports; ++i) {
    unreached.Add("w0", "red", absl::StrCat("r", i),
                  kStart + absl::Milliseconds(i));
  }
  EXPECT_EQ(unreached.Summarize("w0", kStart).sessions,
            UnreachedWorkers::kMaxReports);
  unreached.Reached("w0", "red");
  EXPECT_THAT(unreached.AvoidedBy("red", "r0", kStart), IsEmpty());
  EXPECT_THAT(unreached.AvoidedBy("red", "r1", kStart),
              UnorderedElementsAre("w0"));
}

}  // namespace
}  // namespace djinn::coordinator
