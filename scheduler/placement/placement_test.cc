#include "scheduler/placement/placement.h"

#include "common/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kModel = 90'900'000;

WorkerSnapshot Idle(const std::string& id) {
  WorkerSnapshot worker;
  worker.worker_id = id;
  worker.memory_bytes = worker.available_bytes = 16'000'000'000;
  return worker;
}

TEST(PlacementTest, PrefersWhoHoldsTheModelAndSaysSo) {
  WorkerSnapshot holder = Idle("w1");
  holder.held_bytes = kModel;
  holder.available_bytes -= kModel;
  holder.leases = 1;
  const auto placement = Place(kModel, {Idle("w0"), holder, Idle("w2")});
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->worker_id, "w1");
  EXPECT_EQ(placement->reason,
            "holds 90.9 MB of 90.9 MB asked; 0 queued runs, 1 lease");
}

TEST(PlacementTest, LoadOutweighsAffinityInTheEnd) {
  WorkerSnapshot holder = Idle("w1");
  holder.held_bytes = kModel;
  holder.queued_runs = 100;
  EXPECT_EQ(Place(kModel, {Idle("w0"), holder})->worker_id, "w0");
}

TEST(PlacementTest, SessionsSpreadOverEqualWorkers) {
  WorkerSnapshot busy = Idle("w0");
  busy.leases = 1;
  const auto placement = Place(0, {busy, Idle("w1")});
  EXPECT_EQ(placement->worker_id, "w1");
  EXPECT_EQ(placement->reason, "cheapest of 2; 0 queued runs, 0 leases");
}

TEST(PlacementTest, DevicesOfOneSessionGoToDifferentWorkersWhenPossible) {
  WorkerSnapshot used = Idle("w0");
  used.session_leases = used.leases = 1;
  used.held_bytes = kModel;
  WorkerSnapshot other = Idle("w1");
  other.queued_runs = 1000;
  EXPECT_EQ(Place(kModel, {used, other})->worker_id, "w1");
  const auto alone = Place(kModel, {used});
  EXPECT_EQ(alone->worker_id, "w0");
  EXPECT_THAT(alone->reason, HasSubstr("shared with this session"));
}

TEST(PlacementTest, TiesGoToFreeMemoryThenToTheSmallerId) {
  WorkerSnapshot fuller = Idle("w0");
  fuller.available_bytes -= 1;
  EXPECT_EQ(Place(0, {fuller, Idle("w2"), Idle("w1")})->worker_id, "w1");
}

TEST(PlacementTest, SaysWhetherWaitingMayHelp) {
  EXPECT_EQ(ErrorReason(Place(0, {}).status()), "NO_WORKER");
  WorkerSnapshot busy = Idle("w0");
  busy.available_bytes = 1000;
  const absl::Status now = Place(kModel, {busy}).status();
  EXPECT_EQ(ErrorReason(now), "NO_CAPACITY");
  EXPECT_THAT(std::string(now.message()), HasSubstr("at most 1.0 kB"));
  const absl::Status never = Place(10'000'000'000'000, {busy}).status();
  EXPECT_EQ(ErrorReason(never), "TOO_LARGE");
  EXPECT_THAT(std::string(never.message()), HasSubstr("asked 10.0 TB"));
  // What is held needs no room.
  WorkerSnapshot full = Idle("w0");
  full.available_bytes = 0;
  full.held_bytes = kModel;
  EXPECT_TRUE(Place(kModel, {full}).ok());
}

}  // namespace
}  // namespace djinn::scheduler
