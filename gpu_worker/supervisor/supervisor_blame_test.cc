// Tests which leases a supervisor names when an executor dies, and when.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST_F(SupervisorTest, OnlyTheLeaseInServiceIsToBlameForADeath) {
  Step();
  Lease("a", "a1");
  Lease("a", "a2");
  launcher_.words[0].NoteServed({"a2"});
  executor(0).Die();
  Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST"),
                                   std::pair("a2", "EXECUTOR_LOST_IN_TURN")));
}

TEST_F(SupervisorTest, AllRunsOfABatchAreToBlameForADeath) {
  Step();
  Lease("a", "a1");
  Lease("a", "a2");
  launcher_.words[0].NoteServed({"a1", "a2"});
  executor(0).Die();
  Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST_IN_TURN"),
                                   std::pair("a2", "EXECUTOR_LOST_IN_TURN")));
}

TEST_F(SupervisorTest, DeathBetweenTurnsBlamesNoLease) {
  Step();
  Lease("a", "a1");
  launcher_.words[0].NoteServed({"a1"});
  launcher_.words[0].NoteServed({});
  executor(0).Die();
  Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST")));
}

TEST_F(SupervisorTest, KillFromOutsideBlamesNoLease) {
  Step();
  Lease("a", "a1");
  launcher_.words[0].NoteServed({"a1"});
  launcher_.end = {"signal 9", /*killed=*/true};
  executor(0).Die();
  Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST")));
}

TEST_F(SupervisorTest, TheLeaseInServiceIsToBlameForSilence) {
  Step();
  executor(0).SayReady();
  Lease("a", "a1");
  launcher_.words[0].NoteServed({"a1"});
  launcher_.end = {"signal 9", /*killed=*/true};
  for (int i = 0; i < 35; ++i) {
    clock_.Advance(absl::Seconds(1));
    Step();
  }
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST_IN_TURN")));
}

TEST_F(SupervisorTest, OnlyTheLeaseWhoseNodeTookTooLongEndsForThat) {
  Step();
  executor(0).SayReady();
  Lease("a", "a1");
  Lease("a", "a2");
  launcher_.words[0].NoteServed({"a1"});
  v1::FromExecutor health;
  health.mutable_health()->set_mark(5);
  for (int i = 0; i < 302; ++i) {
    if (i < 301) executor(0).Send(health);
    clock_.Advance(absl::Seconds(1));
    Step();
  }
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "NODE_LIMIT"),
                                   std::pair("a2", "EXECUTOR_LOST")));
}

TEST_F(SupervisorTest, AddressOfADeadExecutorIsRefusedOnlyAfterItsReport) {
  Step();
  Lease("a", "a1");
  executor(0).Die();
  Step();
  ASSERT_THAT(Ended(), SizeIs(1));
  EXPECT_TRUE(launcher_.Listens(1));
  clock_.Advance(absl::Seconds(2));
  Step();
  EXPECT_FALSE(launcher_.Listens(1));
}

TEST_F(SupervisorTest, SpoiledNoteOfServedLeasesIsHarmless) {
  Step();
  Lease("a", "a1");
  const std::vector<std::string> ids(300, "a1");
  const std::vector<absl::string_view> views(ids.begin(), ids.end());
  launcher_.words[0].NoteServed(views);
  executor(0).Die();
  Step();
  EXPECT_THAT(Ended(), ElementsAre(std::pair("a1", "EXECUTOR_LOST_IN_TURN")));
}

}  // namespace
}  // namespace djinn::worker
