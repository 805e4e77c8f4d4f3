#include "coordinator/console/lease_history.h"

#include <string>

#include "common/base/proto_duration.h"
#include "gtest/gtest.h"

namespace djinn::console {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

v1::ListLeasesResponse Leases(const std::string& id, const std::string& worker,
                              absl::Duration age) {
  v1::ListLeasesResponse all;
  v1::LeaseInfo* const lease = all.add_leases();
  lease->set_lease_id(id);
  lease->set_session_id("s");
  lease->set_worker_id(worker);
  *lease->mutable_age() = ToProtoDuration(age);
  *lease->mutable_lease_use()->mutable_device_time() =
      ToProtoDuration(absl::Seconds(2));
  return all;
}

v1::SessionExplanation Lost(const std::string& lease) {
  v1::SessionExplanation why;
  why.set_session_id("s");
  v1::LostLease* const lost = why.add_devices()->mutable_lost_lease();
  lost->set_lease_id(lease);
  lost->set_worker_id("w1");
  lost->set_reason("WORKER_LOST");
  *lost->mutable_lost() = ToProtoDuration(absl::Seconds(7));
  *lost->mutable_age() = ToProtoDuration(absl::Seconds(1));
  return why;
}

TEST(LeaseHistoryTest, ALeaseThatIsGoneHasEnded) {
  LeaseHistory history(10);
  history.Update(Leases("a", "w1", absl::Seconds(5)), {}, kNow);
  EXPECT_EQ(history.open().at("a").began, kNow - absl::Seconds(5));
  EXPECT_EQ(history.open().at("a").device_time, absl::Seconds(2));
  history.Update(Leases("b", "w2", absl::ZeroDuration()), {},
                 kNow + absl::Seconds(1));
  EXPECT_TRUE(history.open().contains("b"));
  ASSERT_EQ(history.ended().size(), 1u);
  EXPECT_EQ(history.ended()[0].lease, "a");
  EXPECT_EQ(history.ended()[0].ended, kNow + absl::Seconds(1));
  EXPECT_EQ(history.ended()[0].end_reason, "");
  history.Explain(Lost("a"), kNow + absl::Seconds(2));
  ASSERT_EQ(history.ended().size(), 1u);
  EXPECT_EQ(history.ended()[0].end_reason, "WORKER_LOST");
  EXPECT_EQ(history.ended()[0].device_time, absl::Seconds(7));
}

TEST(LeaseHistoryTest, ALeaseLostBeforeTheFirstLookIsKnownFromItsExplanation) {
  LeaseHistory history(10);
  history.Explain(Lost("a"), kNow);
  history.Explain(Lost("a"), kNow + absl::Seconds(1));
  ASSERT_EQ(history.ended().size(), 1u);
  EXPECT_EQ(history.ended()[0].ended, kNow - absl::Seconds(1));
  EXPECT_EQ(history.ended()[0].worker, "w1");
}

TEST(LeaseHistoryTest, ALeaseReturnedBecauseItsWorkerIsAwayWasLost) {
  LeaseHistory history(10);
  v1::ListWorkersResponse workers;
  v1::WorkerInfo* const worker = workers.add_workers();
  worker->set_worker_id("w1");
  worker->set_state(v1::WorkerInfo::ACTIVE);
  history.Update(Leases("a", "w1", absl::Seconds(5)), {}, kNow);
  history.Update({}, {}, kNow);
  history.NoteLostWorkers(workers, kNow);
  EXPECT_EQ(history.ended()[0].end_reason, "");
  worker->set_state(v1::WorkerInfo::LOST);
  history.NoteLostWorkers(workers, kNow + absl::Minutes(2));
  EXPECT_EQ(history.ended()[0].end_reason, "");
  history.NoteLostWorkers(workers, kNow + absl::Seconds(1));
  EXPECT_EQ(history.ended()[0].end_reason, "WORKER_LOST");
}

TEST(LeaseHistoryTest, AMigrationIsOneHoweverOftenItIsReported) {
  LeaseHistory history(10);
  v1::ListSessionsResponse sessions;
  v1::SessionInfo* const session = sessions.add_sessions();
  session->set_session_id("s");
  v1::MigrationInfo* const migration = session->add_migrations();
  migration->set_from_worker_id("w1");
  migration->set_to_worker_id("w2");
  migration->set_state(v1::MigrationInfo::UNDER_WAY);
  history.Update({}, sessions, kNow);
  migration->set_state(v1::MigrationInfo::DONE);
  *migration->mutable_age() = ToProtoDuration(absl::Milliseconds(1990));
  history.Update({}, sessions, kNow + absl::Seconds(2));
  ASSERT_EQ(history.migrations().size(), 1u);
  EXPECT_EQ(history.migrations()[0].info.state(), v1::MigrationInfo::DONE);
  EXPECT_EQ(history.migrations()[0].decided, kNow);
  // The same way, much later.
  *migration->mutable_age() = ToProtoDuration(absl::ZeroDuration());
  history.Update({}, sessions, kNow + absl::Seconds(60));
  EXPECT_EQ(history.migrations().size(), 2u);
}

TEST(LeaseHistoryTest, KeepsTheLast) {
  LeaseHistory history(2);
  for (const char* const id : {"a", "b", "c", "d"}) {
    history.Update(Leases(id, "w", absl::ZeroDuration()), {}, kNow);
  }
  ASSERT_EQ(history.ended().size(), 2u);
  EXPECT_EQ(history.ended()[0].lease, "b");
  EXPECT_EQ(history.ended()[1].lease, "c");
}

}  // namespace
}  // namespace djinn::console
