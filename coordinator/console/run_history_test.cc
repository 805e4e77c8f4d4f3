#include "coordinator/console/run_history.h"

#include <string>
#include <vector>

#include "common/base/proto_duration.h"
#include "gtest/gtest.h"

namespace djinn::console {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

v1::RunInfo ARun(const std::string& lease, uint64_t number,
                 v1::RunRecord::State state) {
  v1::RunInfo run;
  run.set_lease_id(lease);
  run.mutable_record()->set_number(number);
  run.mutable_record()->set_state(state);
  run.mutable_record()->set_fingerprint("ab");
  *run.mutable_record()->mutable_age() = ToProtoDuration(absl::Seconds(3));
  return run;
}

TEST(RunHistoryTest, PlacesARunByItsAge) {
  RunHistory history(10);
  v1::RunInfo run = ARun("l", 1, v1::RunRecord::WAITING);
  history.Add(run, kNow);
  const SeenRun& seen = history.by_change().begin()->second;
  EXPECT_EQ(seen.received, kNow - absl::Seconds(3));
  EXPECT_LT(seen.served, absl::ZeroDuration());
}

TEST(RunHistoryTest, UpdatesARunUntilItEnds) {
  RunHistory history(10);
  history.Add(ARun("l", 1, v1::RunRecord::WAITING), kNow);
  const uint64_t first = history.last_change();
  v1::RunInfo ended = ARun("l", 1, v1::RunRecord::COMPLETED);
  *ended.mutable_record()->mutable_served() = ToProtoDuration(absl::Seconds(1));
  history.Add(ended, kNow);
  EXPECT_GT(history.last_change(), first);
  ASSERT_EQ(history.by_change().size(), 1u);
  EXPECT_EQ(history.by_change().begin()->second.state,
            v1::RunRecord::COMPLETED);
  EXPECT_EQ(history.by_change().begin()->second.id, 1u);
  // A later answer about it is no change.
  const uint64_t second = history.last_change();
  history.Add(ended, kNow + absl::Seconds(9));
  EXPECT_EQ(history.last_change(), second);
  EXPECT_EQ(history.MeasuredOf("ab").runs, 1u);
  EXPECT_EQ(history.MeasuredOf("ab").served, absl::Seconds(1));
  EXPECT_EQ(history.MeasuredOf("cd").runs, 0u);
}

TEST(RunHistoryTest, RunsOfAnotherLeaseAreOthers) {
  RunHistory history(10);
  history.Add(ARun("l", 1, v1::RunRecord::COMPLETED), kNow);
  history.Add(ARun("m", 1, v1::RunRecord::COMPLETED), kNow);
  EXPECT_EQ(history.by_change().size(), 2u);
}

TEST(RunHistoryTest, ForgetsThoseThatChangedLeastRecently) {
  RunHistory history(3);
  for (uint64_t number = 1; number <= 3; ++number) {
    history.Add(ARun("l", number, v1::RunRecord::WAITING), kNow);
  }
  history.Add(ARun("l", 1, v1::RunRecord::IN_SERVICE), kNow);
  history.Add(ARun("l", 4, v1::RunRecord::WAITING), kNow);
  std::vector<uint64_t> left;
  for (const auto& [change, run] : history.by_change()) {
    left.push_back(run.number);
  }
  EXPECT_EQ(left, (std::vector<uint64_t>{3, 1, 4}));
  // A forgotten run that is reported again is a new one.
  history.Add(ARun("l", 2, v1::RunRecord::COMPLETED), kNow);
  EXPECT_EQ(history.by_change().rbegin()->second.id, 5u);
}

}  // namespace
}  // namespace djinn::console
