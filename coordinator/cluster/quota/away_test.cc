// Tests what sessions give up whose client is away, and for whom.
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/quota_fixture.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

// Red may have one lease.
class ClusterAwayTest : public ClusterQuotaTest {
 protected:
  ClusterAwayTest() { SetRedMemory(kGiB); }

  // Has the worker report whether its first session has a stream.
  void Report(bool attached) {
    w0_.mutable_sessions(0)->set_attached(attached);
    EXPECT_EQ(workers::Report(*cluster_, worker_, w0_), absl::OkStatus());
  }
  // Breaks both streams of the session, and lets the time pass.
  void Kill(const StreamId& session, absl::Duration time) {
    sessions::Detach(*cluster_, session);
    Report(/*attached=*/false);
    clock_.Advance(time);
  }
};

constexpr absl::Duration kAway = absl::Milliseconds(1100);

TEST_F(ClusterAwayTest, LeaseGoesToTheNextSessionAfterASecond) {
  const StreamId gone = Leased("red");
  Report(/*attached=*/true);
  Kill(gone, kAway);
  const StreamId next = Open("red");
  EXPECT_TRUE(Ask(next)->has_granted());
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
  ASSERT_EQ(w0_.sessions_size(), 1) << "the worker did not drop the session";
  EXPECT_EQ(UncheckedClaims(w0_.sessions(0).lease()).session_id(), next.owner);
}

TEST_F(ClusterAwayTest, ClientThatComesBackRecoversAsFromALostWorker) {
  const StreamId gone = Leased("red");
  const std::string lease_id = LeaseId(w0_);
  Kill(gone, kAway);
  const StreamId next = Leased("red");
  const StreamId back = Open("red", gone.owner);
  const std::optional<v1::SessionResponse> told = Next(back);
  ASSERT_TRUE(told.has_value() && told->has_ended());
  EXPECT_EQ(told->ended().lease_id(), lease_id);
  EXPECT_EQ(told->ended().reason(), "SESSION_LOST");
  EXPECT_EQ(Ask(back)->refused().reason(), "QUOTA_EXCEEDED");
  sessions::Close(*cluster_, next);
  Execute(worker_, &w0_);
  EXPECT_TRUE(Ask(back)->has_granted());
}

TEST_F(ClusterAwayTest, NothingIsTakenBeforeASecondHasPassed) {
  const StreamId gone = Leased("red");
  Kill(gone, absl::Milliseconds(900));
  const v1::LeaseRefused refused = Ask(Open("red"))->refused();
  EXPECT_EQ(refused.reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(FromProtoDuration(refused.retry_after()), absl::Milliseconds(100));
  // The client was away for a moment only, and has lost nothing.
  EXPECT_EQ(Next(Open("red", gone.owner)), std::nullopt);
  EXPECT_EQ(MemoryOf("red").used(), kGiB);
}

TEST_F(ClusterAwayTest, NothingIsTakenWhereNobodyAsks) {
  const StreamId gone = Leased("red");
  Kill(gone, absl::Seconds(20));
  Leased("blue");
  EXPECT_EQ(Next(Open("red", gone.owner)), std::nullopt);
  EXPECT_EQ(w0_.sessions_size(), 2);
}

TEST_F(ClusterAwayTest, SessionThatAWorkerStillServesKeepsItsLease) {
  const StreamId cut = Leased("red");
  sessions::Detach(*cluster_, cut);
  Report(/*attached=*/true);
  clock_.Advance(absl::Seconds(5));
  Report(/*attached=*/true);
  EXPECT_EQ(Ask(Open("red"))->refused().reason(), "QUOTA_EXCEEDED");
}

TEST_F(ClusterAwayTest, WorkerThatHasNotReportedSinceMayServeTheSession) {
  const StreamId cut = Leased("red");
  Report(/*attached=*/false);
  clock_.Advance(absl::Milliseconds(1));
  sessions::Detach(*cluster_, cut);
  clock_.Advance(kAway);
  EXPECT_EQ(Ask(Open("red"))->refused().reason(), "QUOTA_EXCEEDED");
}

TEST_F(ClusterAwayTest, NoneEndsIfAllTogetherHoldTooLittle) {
  const StreamId gone = Leased("red");
  SetRedMemory(kGiB / 2);
  Kill(gone, kAway);
  EXPECT_EQ(Ask(Open("red"))->refused().reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(Next(Open("red", gone.owner)), std::nullopt);
}

TEST_F(ClusterAwayTest, LongestAwayEndsForOneMoreSession) {
  SetRedMemory(4 * kGiB);
  const StreamId first = Leased("red");
  const StreamId second = Leased("red");
  for (int i = 0; i < 2; ++i) Open("red");
  Kill(first, absl::Milliseconds(500));
  EXPECT_EQ(ErrorReason(Attach("red").status()), "TOO_MANY_SESSIONS");
  Kill(second, kAway);
  Open("red");
  EXPECT_EQ(ErrorReason(Attach("red", first.owner).status()),
            "SESSION_EXPIRED");
  EXPECT_EQ(Next(Open("red", second.owner)), std::nullopt);
}

}  // namespace
}  // namespace djinn::coordinator
