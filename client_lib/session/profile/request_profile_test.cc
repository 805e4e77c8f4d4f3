// Tests the profile of a session, with a clock that the test moves.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/session/profile/profile_recorder.h"
#include "client_lib/session/profile/request_tracer.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using Ordered = v1::Ordered;

constexpr uint32_t kLane = 3;

constexpr absl::Duration Ms(int64_t ms) { return absl::Milliseconds(ms); }

class RequestProfileTest : public testing::Test {
 protected:
  ~RequestProfileTest() override { (void)ProfileRecorder::Global().End(); }

  // Opens a session whose worker reports that it had each read for ten
  // milliseconds, and executed for six of these.
  void Open() {
    v1::ReplyTiming timing;
    timing.set_received(7'000'000'000);
    timing.set_sent(7'010'000'000);
    timing.set_execute(6'000'000);
    timing.set_reply(1'000'000);
    v1::ProfileReport report;
    report.add_operators("test::op1");
    v1::RunTimes* const run = report.add_runs();
    run->set_started(7'000'000'000);
    run->set_looked_up(run->started());
    run->set_bound(run->started());
    run->set_ended(7'006'000'000);
    run->set_mode(v1::EXECUTION_MODE_STRICT);
    run->mutable_nodes()->add_operators(0);
    run->mutable_nodes()->add_began(0);
    run->mutable_nodes()->add_took(5'000'000);
    run->mutable_nodes()->add_ways(v1::EXECUTION_PATH_PLAIN);
    cluster_.worker().Set(&FakeScript::timing, timing);
    cluster_.worker().Set(&FakeScript::report, report);
    session_ = cluster_.Open(OptionsWith(&clock_));
    device_ = *session_->Device(0);
    value_ = device_->NewStorage(4);
  }
  void Begin() { ASSERT_TRUE(ProfileRecorder::Global().Begin(&clock_).ok()); }
  absl::StatusOr<Profile> Finish() {
    ProfileRecorder::Global().Stop();
    const absl::Status finished = session_->FinishProfile();
    Profile profile = ProfileRecorder::Global().End();
    if (!finished.ok()) return finished;
    return profile;
  }
  void Write() {
    NoteWork();
    EXPECT_TRUE(Record(*device_, kLane, MakeCall(1, {{value_, kWrites}})).ok());
  }
  // Captures for the duration `capture`, then reads, while the worker takes
  // `away` to answer. Returns the time that the caller measures.
  absl::Duration Request(absl::Duration capture, absl::Duration away) {
    const absl::Duration before = clock_.Monotonic();
    Write();
    clock_.Advance(capture);
    cluster_.worker().Pause();
    std::thread worker([&] {
      cluster_.worker().WaitForRead();
      clock_.Advance(away);
      cluster_.worker().Resume();
    });
    EXPECT_TRUE(ReadByte(*device_, kLane, value_).ok());
    worker.join();
    return clock_.Monotonic() - before;
  }
  std::vector<Ordered::ActionCase> Actions() {
    std::vector<Ordered::ActionCase> actions;
    for (const Ordered& message : cluster_.worker().seen().received) {
      actions.push_back(message.action_case());
    }
    return actions;
  }

  FakeClock clock_;
  FakeCluster cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
  StoragePtr value_;
};

TEST_F(RequestProfileTest, TheStagesAddUpToWhatTheCallerMeasured) {
  Open();
  Begin();
  const absl::Duration wall = Request(Ms(20), Ms(14));
  const absl::StatusOr<Profile> profile = Finish();
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_EQ(profile->requests.size(), 1u);
  const RequestProfile& request = profile->requests[0];
  EXPECT_EQ(wall, Ms(34));
  EXPECT_EQ(std::accumulate(request.stages.begin(), request.stages.end(),
                            absl::Duration()),
            wall);
  EXPECT_EQ(request[Stage::kCapture], Ms(20));
  EXPECT_EQ(request[Stage::kExecute], Ms(6));
  EXPECT_EQ(request[Stage::kReply], Ms(1));
  EXPECT_EQ(request[Stage::kWorkerQueue], Ms(3));
  EXPECT_EQ(request[Stage::kTransit], Ms(2));
  EXPECT_EQ(request[Stage::kTransitBack], Ms(2));
  EXPECT_EQ(profile->statistics.capture, Ms(20));
  EXPECT_EQ(profile->statistics.schedule, Ms(3));
  EXPECT_EQ(profile->statistics.execution, Ms(6));
  ASSERT_EQ(profile->operators.size(), 1u);
  EXPECT_EQ(profile->operators[0].total, Ms(5));
  EXPECT_EQ(profile->workers, std::vector<std::string>{"w0"});
}

TEST_F(RequestProfileTest, EachReadEndsARequest) {
  Open();
  Begin();
  EXPECT_EQ(Request(Ms(1), Ms(10)), Ms(11));
  clock_.Advance(Ms(100));  // the program does something else
  EXPECT_EQ(Request(Ms(2), Ms(12)), Ms(14));
  const absl::StatusOr<Profile> profile = Finish();
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_EQ(profile->requests.size(), 2u);
  EXPECT_EQ(profile->requests[0].ended - profile->requests[0].began, Ms(11));
  EXPECT_EQ(profile->requests[1].ended - profile->requests[1].began, Ms(14));
}

TEST_F(RequestProfileTest, AnAsynchronousReadEndsWhereItIsWaitedFor) {
  Open();
  Begin();
  Write();
  clock_.Advance(Ms(5));
  std::string value(4, '?');
  absl::StatusOr<std::unique_ptr<PendingRead>> read =
      device_->StartRead(kLane, value_.get(), WholeView(*value_.get()),
                         value.data(), value.size());
  ASSERT_TRUE(read.ok());
  ASSERT_TRUE((*read)->Wait(absl::InfiniteDuration()).ok());
  ASSERT_TRUE((*read)->Wait(absl::InfiniteDuration()).ok());
  const absl::StatusOr<Profile> profile = Finish();
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_EQ(profile->requests.size(), 1u);
  EXPECT_EQ(profile->requests[0][Stage::kCapture], Ms(5));
}

TEST_F(RequestProfileTest, TheWorkerIsToldBeforeTheFirstRunAndAfterTheLast) {
  Open();
  Write();
  EXPECT_TRUE(device_->Synchronize().ok());
  Begin();
  Write();
  EXPECT_TRUE(ReadByte(*device_, kLane, value_).ok());
  ASSERT_TRUE(Finish().ok());
  Write();
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(Actions(),
            (std::vector<Ordered::ActionCase>{
                Ordered::kDefineGraph, Ordered::kRun, Ordered::kProfile,
                Ordered::kDefineGraph, Ordered::kRun, Ordered::kRead,
                Ordered::kProfile, Ordered::kRun}));
}

TEST_F(RequestProfileTest, ADeviceThatWasNotUsedIsNotAsked) {
  Open();
  Begin();
  ASSERT_TRUE(Finish().ok());
  EXPECT_TRUE(Actions().empty());
}

TEST_F(RequestProfileTest, AsksForTheTimesBeforeTheyAreTooMany) {
  Open();
  Begin();
  for (int i = 0; i < 1030; ++i) {
    Write();
    EXPECT_TRUE(device_->Synchronize().ok());
  }
  const absl::StatusOr<Profile> profile = Finish();
  ASSERT_TRUE(profile.ok()) << profile.status();
  const std::vector<Ordered::ActionCase> actions = Actions();
  EXPECT_EQ(std::count(actions.begin(), actions.end(), Ordered::kProfile), 3);
  EXPECT_EQ(profile->runs.size(), 2u);
  EXPECT_EQ(profile->remarks.size(), 1u);  // the program read nothing
}

TEST_F(RequestProfileTest, TimesThatCannotBeEndTheStream) {
  Open();
  v1::ReplyTiming timing;
  timing.set_received(10);
  timing.set_sent(5);
  cluster_.worker().Set(&FakeScript::timing, timing);
  cluster_.worker().Set(&FakeScript::report, {});
  Begin();
  Write();
  EXPECT_EQ(ReadByte(*device_, kLane, value_).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(Finish().ok());
}

TEST_F(RequestProfileTest, AProgramWhoseOperatorFailedIsProfiledAllTheSame) {
  Open();
  Begin();
  cluster_.worker().Set(&FakeScript::fail_next_run, 7);
  Write();
  EXPECT_FALSE(ReadByte(*device_, kLane, value_).ok());
  Write();
  const absl::StatusOr<Profile> profile = Finish();
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_TRUE(profile->requests.empty());
  EXPECT_EQ(profile->runs.size(), 1u);
  EXPECT_EQ(Actions().back(), Ordered::kProfile);
  // The next profile starts from nothing.
  Begin();
  Write();
  EXPECT_TRUE(Finish().ok());
}

TEST_F(RequestProfileTest, ALostWorkerEndsTheProfileWithItsFailure) {
  Open();
  Begin();
  Write();
  EXPECT_TRUE(ReadByte(*device_, kLane, value_).ok());
  cluster_.coordinator().EndLease("lease-0", "LEASE_EXPIRED");
  EXPECT_EQ(ErrorReason(Finish().status()), "WORKER_LOST");
}

}  // namespace
}  // namespace djinn
