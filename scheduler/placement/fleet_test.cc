#include "scheduler/placement/fleet.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::scheduler {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

WorkerFacts Worker(const std::string& id, uint64_t memory_bytes) {
  WorkerFacts facts;
  facts.id = id;
  facts.memory_bytes = memory_bytes;
  return facts;
}

TEST(FleetTest, KnowsWhoHoldsWhat) {
  Fleet fleet;
  fleet.Put(Worker("a", 1));
  fleet.Put(Worker("b", 1));
  fleet.SetHeld("a", {1, 2});
  fleet.SetHeld("b", {2, 3});
  EXPECT_THAT(fleet.Holders(2), SizeIs(2));
  fleet.SetHeld("a", {3});
  EXPECT_THAT(fleet.Holders(1), IsEmpty());
  ASSERT_THAT(fleet.Holders(2), SizeIs(1));
  EXPECT_EQ(fleet.Holders(2)[0]->facts.id, "b");
  EXPECT_THAT(fleet.Holders(3), SizeIs(2));
  // Put() changes a worker's facts and keeps what it holds.
  fleet.Put(Worker("b", 5));
  EXPECT_THAT(fleet.Holders(3), SizeIs(2));
  fleet.Update("b", [](WorkerFacts* facts) { facts->queued_seconds = 4; });
  EXPECT_EQ(fleet.Find("b")->facts.queued_seconds, 4);
  fleet.Hold("b", 9);
  fleet.Hold("b", 9);
  EXPECT_THAT(fleet.Holders(9), SizeIs(1));
  fleet.Release("b", 9);
  fleet.Release("b", 9);
  EXPECT_THAT(fleet.Holders(9), IsEmpty());
  fleet.Remove("b");
  EXPECT_THAT(fleet.Holders(3), SizeIs(1));
  EXPECT_THAT(fleet.Holders(2), IsEmpty());
}

TEST(FleetTest, KnowsTheLargestMemory) {
  Fleet fleet;
  EXPECT_EQ(fleet.largest_memory(), 0u);
  fleet.Put(Worker("a", 3));
  fleet.Put(Worker("b", 7));
  fleet.Put(Worker("c", 7));
  fleet.Remove("b");
  EXPECT_EQ(fleet.largest_memory(), 7u);
  fleet.Put(Worker("c", 2));
  EXPECT_EQ(fleet.largest_memory(), 3u);
}

TEST(FleetTest, PlacesStayDense) {
  Fleet fleet;
  for (const char* id : {"a", "b", "c", "d"}) fleet.Put(Worker(id, 1));
  fleet.Remove("b");
  fleet.Remove("unknown");
  fleet.Remove("d");
  ASSERT_THAT(fleet.all(), SizeIs(2));
  for (size_t i = 0; i < fleet.size(); ++i) {
    EXPECT_EQ(fleet.all()[i]->place, i);
    EXPECT_EQ(fleet.Find(fleet.all()[i]->facts.id), fleet.all()[i]);
  }
  EXPECT_EQ(fleet.Find("b"), nullptr);
}

}  // namespace
}  // namespace djinn::scheduler
