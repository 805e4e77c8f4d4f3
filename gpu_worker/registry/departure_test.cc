#include "gpu_worker/registry/departure.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class DepartureTest : public testing::Test {
 protected:
  static v1::LeaveProgress Progress(uint32_t leases, bool settled,
                                    bool others) {
    v1::LeaveProgress progress;
    progress.set_leases(leases);
    progress.set_settled(settled);
    progress.set_others(others);
    return progress;
  }
  // Returns what ends a departure for which the coordinator answers in turn;
  // the last answer comes again and again.
  std::string Await(std::vector<absl::StatusOr<v1::LeaveProgress>> answers) {
    v1::LeaveRequest request;
    request.set_worker_id("w0");
    return AwaitDeparture(
        request,
        {.call =
             [&](const v1::LeaveRequest& asked) {
               EXPECT_EQ(asked.worker_id(), "w0");
               const size_t at = std::min<size_t>(calls_, answers.size() - 1);
               ++calls_;
               return answers[at];
             },
         .patience = patience_,
         .clock = &clock_},
        [this](absl::Duration time) {
          clock_.Advance(time);
          waited_ += time;
          return waited_ >= must_stop_;
        },
        absl::Seconds(10));
  }

  FakeClock clock_;
  int calls_ = 0;
  absl::Duration patience_;
  absl::Duration waited_;
  absl::Duration must_stop_ = absl::InfiniteDuration();
};

TEST_F(DepartureTest, WithoutLeasesItEndsAtOnce) {
  EXPECT_EQ(Await({Progress(0, true, false)}), "nothing is left");
  EXPECT_EQ(waited_, absl::ZeroDuration());
}

TEST_F(DepartureTest, ItWaitsUntilAllHasMovedAndIsSettled) {
  EXPECT_EQ(Await({Progress(2, true, true), Progress(1, false, true),
                   Progress(0, false, true), Progress(0, true, true)}),
            "nothing is left");
  EXPECT_EQ(calls_, 4);
}

TEST_F(DepartureTest, WithNowhereToGoItDoesNotWait) {
  EXPECT_EQ(Await({Progress(2, true, false)}),
            "no other worker takes leases; 2 end here");
  EXPECT_EQ(calls_, 1);
}

TEST_F(DepartureTest, ACoordinatorThatIsAwayIsNotWaitedFor) {
  EXPECT_EQ(Await({Progress(2, true, true), absl::UnavailableError("away")}),
            "the coordinator does not help: away");
}

TEST_F(DepartureTest, AnotherLeaderIsWaitedFor) {
  patience_ = absl::Seconds(3);
  const absl::Status unknown =
      MakeError(absl::StatusCode::kNotFound, "WORKER_UNKNOWN", "no w0");
  // There is no leader; it does not know this worker; it knows no other one.
  EXPECT_EQ(Await({Progress(2, true, true), absl::UnavailableError("away"),
                   absl::CancelledError("it stops"), unknown,
                   Progress(2, true, false), Progress(1, true, true),
                   Progress(0, true, true)}),
            "nothing is left");
  EXPECT_EQ(calls_, 7);
}

TEST_F(DepartureTest, AnotherLeaderIsWaitedForWithPatienceAtMost) {
  patience_ = absl::Seconds(3);
  EXPECT_EQ(Await({Progress(2, true, true), absl::UnavailableError("away")}),
            "the coordinator does not help: away");
  EXPECT_EQ(waited_, absl::Seconds(3));
}

TEST_F(DepartureTest, OtherErrorsAndASteadyLeaderAreFinal) {
  patience_ = absl::Seconds(3);
  EXPECT_EQ(Await({MakeError(absl::StatusCode::kUnauthenticated,
                             "TOKEN_UNKNOWN", "token")}),
            "the coordinator does not help: token");
  EXPECT_EQ(calls_, 1);
  calls_ = 0;
  EXPECT_EQ(Await({Progress(2, true, true), Progress(2, true, false)}),
            "no other worker takes leases; 2 end here");
  EXPECT_EQ(calls_, 2);
}

TEST_F(DepartureTest, TheTimeIsBounded) {
  EXPECT_EQ(Await({Progress(2, true, true)}), "the time is over: 10s");
  EXPECT_EQ(waited_, absl::Seconds(10));
}

TEST_F(DepartureTest, AnotherSignalCutsItShort) {
  must_stop_ = absl::Seconds(1);
  EXPECT_EQ(Await({Progress(2, true, true)}), "the process must stop at once");
  EXPECT_EQ(waited_, absl::Seconds(1));
}

}  // namespace
}  // namespace djinn::worker
