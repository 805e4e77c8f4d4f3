#include "scheduler/placement/migration.h"

#include <limits>

#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

Terms Of(double queue, double compute, uint64_t missing = 0,
         double transfer = 0) {
  Terms terms;
  terms.queue_seconds = queue;
  terms.compute_seconds = compute;
  terms.missing_bytes = missing;
  terms.transfer_seconds = transfer;
  return terms;
}

TEST(MigrationTest, GoesWhereItsWorkIsDoneSoonerByAMargin) {
  // The other worker is twice as fast, and little must be moved.
  const MigrationTerms twice =
      WeighMigration(Of(0, 0.02), true, Of(0, 0.01, 1000, 1e-6));
  EXPECT_TRUE(twice.pays);
  EXPECT_DOUBLE_EQ(twice.stay_seconds, 60);
  EXPECT_DOUBLE_EQ(twice.go_seconds, 30 + 1e-6 + 0.5);
  EXPECT_EQ(twice.state_bytes, 1000u);
  // A fifth faster is within the margin.
  EXPECT_FALSE(WeighMigration(Of(0, 0.02), true, Of(0, 0.016)).pays);
  // Equal workers are, too, in either direction.
  EXPECT_FALSE(WeighMigration(Of(0, 0.02), true, Of(0, 0.02)).pays);
}

TEST(MigrationTest, QueuesOfOtherSessionsCount) {
  EXPECT_TRUE(WeighMigration(Of(0.1, 0.01), true, Of(0, 0.01)).pays);
  EXPECT_FALSE(WeighMigration(Of(0, 0.01), true, Of(0.1, 0.001)).pays);
}

TEST(MigrationTest, ASlowLinkKeepsItWhereItIs) {
  EXPECT_FALSE(
      WeighMigration(Of(0, 0.02), true, Of(0, 0.01, 1 << 30, 16)).pays);
  EXPECT_TRUE(WeighMigration(Of(0, 0.02), true, Of(0, 0.01, 1 << 30, 14)).pays);
}

TEST(MigrationTest, WhereItShouldNotBeItDoesNotStay) {
  const MigrationTerms terms =
      WeighMigration(Of(0, 0), false, Of(1, 0, 1 << 30, 100));
  EXPECT_TRUE(terms.pays);
  EXPECT_EQ(terms.stay_seconds, std::numeric_limits<double>::infinity());
}

TEST(MigrationTest, UnknownTimeMovesNothing) {
  EXPECT_FALSE(WeighMigration(Of(10, 0), true, Of(0, 0.01)).pays);
  EXPECT_FALSE(WeighMigration(Of(10, 0.01), true, Of(0, 0)).pays);
}

}  // namespace
}  // namespace djinn::scheduler
