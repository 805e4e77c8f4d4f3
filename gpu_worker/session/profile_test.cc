// Tests a session that its client profiles.
#include <algorithm>
#include <memory>
#include <string>

#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

class ProfileTest : public WorkerCoreTest {
 protected:
  static uint64_t Say(TestClient* client, v1::ProfileAction action) {
    v1::Ordered message;
    message.mutable_profile()->set_action(action);
    return client->Send(std::move(message));
  }
  static v1::ProfileReport Ask(TestClient* client, v1::ProfileAction action) {
    const uint64_t sequence = Say(client, action);
    return client
        ->WaitFor([&](const v1::ControlResponse& r) {
          return r.has_profile() && r.profile().sequence() == sequence;
        })
        .profile();
  }
  static v1::ReplyTiming Timing(TestClient* client, uint64_t sequence) {
    return client
        ->WaitFor([&](const v1::ControlResponse& r) {
          return r.has_read() && r.read().sequence() == sequence;
        })
        .timing();
  }
  // Opens a session with two storages and x += y as graph 1.
  std::unique_ptr<TestClient> OpenWithProgram() {
    std::unique_ptr<TestClient> client = Open();
    client->Define(1, AddTo());
    client->InstallInline(1, FloatBytes({1, 2}));
    client->WaitCompleted(client->InstallInline(2, FloatBytes({10, 20})));
    return client;
  }
  void EachNodeTakes(absl::Duration time) {
    device_.SetExecuteHook([this, time](const std::string&) {
      clock_.Advance(time);
      return absl::OkStatus();
    });
  }
};

TEST_F(ProfileTest, ARepliesTimingCountsOnlyWhatTheReadWaitedFor) {
  std::unique_ptr<TestClient> client = OpenWithProgram();
  Ask(client.get(), v1::PROFILE_ACTION_START);
  uint64_t read = 0;
  {
    NodeGate gate(&device_, 1);
    client->Run(1, {1, 2});
    gate.WaitReached(1);
    clock_.Advance(absl::Milliseconds(50));  // before the read arrives
    read = client->SendRead(1, FakeGraph::View(0, 2));
    ASSERT_TRUE(WaitUntil([&] {
      return core_->Snapshot().sessions(0).use().outstanding() == 2;
    }));
    clock_.Advance(absl::Milliseconds(3));
  }
  const v1::ReplyTiming timing = Timing(client.get(), read);
  EXPECT_EQ(timing.execute(), 3'000'000u);
  EXPECT_EQ(timing.sent() - timing.received(), 3'000'000u);
  EXPECT_EQ(timing.bind() + timing.admission() + timing.reply(), 0u);
  Ask(client.get(), v1::PROFILE_ACTION_STOP);
  EXPECT_FALSE(
      client
          ->WaitFor([&, sequence = client->SendRead(1, FakeGraph::View(0, 2))](
                        const v1::ControlResponse& r) {
            return r.has_read() && r.read().sequence() == sequence;
          })
          .has_timing());
}

TEST_F(ProfileTest, ReportsTheTimesOfNodes) {
  device_.TimeNodes();
  std::unique_ptr<TestClient> client = OpenWithProgram();
  EachNodeTakes(absl::Milliseconds(2));
  client->Run(1, {1, 2});  // not measured yet
  EXPECT_EQ(Ask(client.get(), v1::PROFILE_ACTION_START).runs_size(), 0);
  const uint64_t run = client->Run(1, {1, 2});
  v1::ProfileReport report = Ask(client.get(), v1::PROFILE_ACTION_REPORT);
  EXPECT_EQ(report.nodes_untimed(), "");
  ASSERT_EQ(report.runs_size(), 1);
  EXPECT_EQ(report.runs(0).sequence(), run);
  ASSERT_EQ(report.runs(0).nodes().took_size(), 1);
  EXPECT_EQ(report.runs(0).nodes().took(0), 2'000'000u);
  EXPECT_EQ(report.operators(0), "fake::add_");
  EXPECT_EQ(report.runs(0).ended() - report.runs(0).started(), 2'000'000u);
  client->Run(1, {1, 2});
  report = Ask(client.get(), v1::PROFILE_ACTION_STOP);
  EXPECT_EQ(report.runs_size(), 1);
}

TEST_F(ProfileTest, MarksNodesThatFailed) {
  device_.TimeNodes();
  std::unique_ptr<TestClient> client = OpenWithProgram();
  Ask(client.get(), v1::PROFILE_ACTION_START);
  device_.SetExecuteHook(
      [](const std::string&) { return absl::InternalError("no luck"); });
  client->Run(1, {1, 2});
  const v1::ProfileReport report = Ask(client.get(), v1::PROFILE_ACTION_STOP);
  EXPECT_EQ(report.runs(0).nodes().ways(0), v1::EXECUTION_PATH_FAILED);
}

TEST_F(ProfileTest, ADeviceThatCannotTimeNodesIsNamed) {
  std::unique_ptr<TestClient> client = OpenWithProgram();
  Ask(client.get(), v1::PROFILE_ACTION_START);
  client->Run(1, {1, 2});
  const v1::ProfileReport report = Ask(client.get(), v1::PROFILE_ACTION_STOP);
  EXPECT_EQ(report.nodes_untimed(),
            "device fake does not say when a node was executed");
  ASSERT_EQ(report.runs_size(), 1);
  EXPECT_EQ(report.runs(0).nodes().took_size(), 0);
}

TEST_F(ProfileTest, OthersInTheQueueAreWaitingAndNotExecuting) {
  std::unique_ptr<TestClient> mine = OpenWithProgram();
  Ask(mine.get(), v1::PROFILE_ACTION_START);
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  other->Define(1, AddTo());
  other->InstallInline(1, FloatBytes({1, 2}));
  other->WaitCompleted(other->InstallInline(2, FloatBytes({10, 20})));
  uint64_t read = 0;
  {
    NodeGate gate(&device_, 1);
    other->Run(1, {1, 2});
    gate.WaitReached(1);
    read = mine->SendRead(1, FakeGraph::View(0, 2));
    ASSERT_TRUE(WaitUntil([&] {
      const v1::WorkerState state = core_->Snapshot();
      uint32_t outstanding = 0;
      for (const auto& session : state.sessions()) {
        outstanding += session.use().outstanding();
      }
      return outstanding == 2;
    }));
    clock_.Advance(absl::Milliseconds(9));
  }
  const v1::ReplyTiming timing = Timing(mine.get(), read);
  EXPECT_EQ(timing.execute(), 0u);
  EXPECT_EQ(timing.sent() - timing.received(), 9'000'000u);
}

TEST_F(ProfileTest, AReadThatComesBeforeItsProfileHasStartedIsPartOfIt) {
  std::unique_ptr<TestClient> client = OpenWithProgram();
  uint64_t read = 0;
  {
    NodeGate gate(&device_, 1);
    client->Run(1, {1, 2});
    gate.WaitReached(1);
    Say(client.get(), v1::PROFILE_ACTION_START);
    read = client->SendRead(1, FakeGraph::View(0, 2));
    ASSERT_TRUE(WaitUntil([&] {
      return core_->Snapshot().sessions(0).use().outstanding() == 3;
    }));
    clock_.Advance(absl::Milliseconds(4));
  }
  const v1::ReplyTiming timing = Timing(client.get(), read);
  EXPECT_EQ(timing.sent() - timing.received(), 4'000'000u);
  EXPECT_EQ(timing.execute(), 0u);  // not measured yet
}

TEST_F(ProfileTest, NextProfileStartsEmpty) {
  device_.TimeNodes();
  std::unique_ptr<TestClient> client = OpenWithProgram();
  for (int i = 0; i < 3; ++i) {
    Say(client.get(), v1::PROFILE_ACTION_START);
    client->Run(1, {1, 2});
    const uint64_t read = client->SendRead(1, FakeGraph::View(0, 2));
    const uint64_t stop = Say(client.get(), v1::PROFILE_ACTION_STOP);
    EXPECT_TRUE(client
                    ->WaitFor([&](const v1::ControlResponse& r) {
                      return r.has_read() && r.read().sequence() == read;
                    })
                    .has_timing());
    EXPECT_EQ(client
                  ->WaitFor([&](const v1::ControlResponse& r) {
                    return r.has_profile() && r.profile().sequence() == stop;
                  })
                  .profile()
                  .runs_size(),
              1);
  }
}

TEST_F(ProfileTest, ActionsOutOfPlaceEndTheStream) {
  for (const v1::ProfileAction action :
       {v1::PROFILE_ACTION_REPORT, v1::PROFILE_ACTION_STOP,
        v1::PROFILE_ACTION_UNSPECIFIED, static_cast<v1::ProfileAction>(77)}) {
    std::unique_ptr<TestClient> client = Open();
    Say(client.get(), action);
    EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
  }
  std::unique_ptr<TestClient> client = Open();
  Ask(client.get(), v1::PROFILE_ACTION_START);
  Say(client.get(), v1::PROFILE_ACTION_START);
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
}

}  // namespace
}  // namespace djinn::worker
