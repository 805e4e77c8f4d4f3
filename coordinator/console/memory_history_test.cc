#include "coordinator/console/memory_history.h"

#include <string>

#include "gtest/gtest.h"

namespace djinn::console {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

v1::ListWorkersResponse Workers(uint64_t free) {
  v1::ListWorkersResponse all;
  for (const char* const id : {"w0", "w1"}) {
    v1::WorkerInfo* const worker = all.add_workers();
    worker->set_worker_id(id);
    worker->set_free_bytes(free);
  }
  return all;
}

v1::ListLeasesResponse Leases() {
  v1::ListLeasesResponse all;
  for (const char* const tenant : {"b", "a", "b"}) {
    v1::LeaseInfo* const lease = all.add_leases();
    lease->set_tenant(tenant);
    lease->set_worker_id("w1");
    lease->mutable_use()->mutable_contents()->set_size_bytes(5);
    lease->mutable_use()->mutable_caches()->set_size_bytes(3);
  }
  all.add_leases()->set_worker_id("gone");
  return all;
}

TEST(MemoryHistoryTest, SumsUpLeasesByWorkerAndTenant) {
  MemoryHistory history(100);
  EXPECT_EQ(history.At(kNow), nullptr);
  history.Add(MemoryMomentOf(Workers(7), Leases(), kNow));
  const auto moment = history.At(absl::InfiniteFuture());
  ASSERT_EQ(moment->workers.size(), 2u);
  EXPECT_EQ(moment->workers[1].free, 7u);
  ASSERT_EQ(moment->tenants.size(), 2u);
  EXPECT_EQ(moment->tenants[0].tenant, "a");
  EXPECT_EQ(moment->tenants[0].worker, 1u);
  EXPECT_EQ(moment->tenants[1].contents, 10u);
  EXPECT_EQ(moment->tenants[1].caches, 6u);
}

TEST(MemoryHistoryTest, KeepsNoMomentWithoutAChange) {
  MemoryHistory history(100);
  history.Add(MemoryMomentOf(Workers(7), Leases(), kNow));
  history.Add(MemoryMomentOf(Workers(7), Leases(), kNow + absl::Seconds(1)));
  EXPECT_EQ(history.times().size(), 1u);
  history.Add(MemoryMomentOf(Workers(8), Leases(), kNow + absl::Seconds(2)));
  EXPECT_EQ(history.times().size(), 2u);
}

TEST(MemoryHistoryTest, FindsTheMomentBeforeATime) {
  MemoryHistory history(100);
  for (uint64_t i = 0; i < 3; ++i) {
    history.Add(MemoryMomentOf(Workers(i), {}, kNow + absl::Seconds(10 * i)));
  }
  EXPECT_EQ(history.At(kNow + absl::Seconds(15))->at, kNow + absl::Seconds(10));
  EXPECT_EQ(history.At(kNow - absl::Seconds(1))->at, kNow);
  EXPECT_EQ(history.At(absl::InfiniteFuture())->at, kNow + absl::Seconds(20));
}

TEST(MemoryHistoryTest, ForgetsTheOldestAndAlwaysKeepsOne) {
  MemoryHistory history(5);
  for (uint64_t i = 0; i < 3; ++i) {
    history.Add(MemoryMomentOf(Workers(i), {}, kNow + absl::Seconds(i)));
  }
  EXPECT_EQ(history.times().size(), 2u);
  MemoryHistory small(1);
  small.Add(MemoryMomentOf(Workers(0), {}, kNow));
  small.Add(MemoryMomentOf(Workers(1), {}, kNow + absl::Seconds(1)));
  ASSERT_EQ(small.times().size(), 1u);
  EXPECT_EQ(small.times()[0], kNow + absl::Seconds(1));
}

}  // namespace
}  // namespace djinn::console
