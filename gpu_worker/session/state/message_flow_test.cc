#include "gpu_worker/session/state/message_flow.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "gpu_worker/session/base/session_environment.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class MessageFlowTest : public testing::Test {
 protected:
  MessageFlowTest() {
    environment_.clock = &clock_;
    limits_.set_max_outstanding(10);
    limits_.set_max_outstanding_bytes(1 << 20);
    pulls_ = std::make_unique<Pulls>(&environment_, "s1", "t1", [] {});
    uploads_ = std::make_unique<Uploads>(
        &environment_, "t1", 1000, &traffic_,
        Uploads::Callbacks{[] {}, [](absl::Duration) {}});
    flow_ = std::make_unique<MessageFlow>(limits_, &clock_, &log_, &traffic_,
                                          uploads_.get(), pulls_.get());
    EXPECT_EQ(Attach(1).received, 0u);
  }

  MessageFlow::Position Attach(uint64_t stream) {
    MessageFlow::Position at;
    flow_->Attach(
        stream, [](bool) { return WindowWidth{10, 1 << 20}; },
        [&](const MessageFlow::Position& position) { at = position; });
    return at;
  }
  static v1::Ordered Run(uint64_t graph) {
    v1::Ordered message;
    message.mutable_run()->set_graph_id(graph);
    return message;
  }
  static v1::Ordered Read() {
    v1::Ordered message;
    message.mutable_read();
    return message;
  }
  bool Receive(v1::Ordered message,
               absl::Duration deadline = absl::InfiniteDuration()) {
    message.set_sequence(++sent_);
    const absl::StatusOr<bool> added = flow_->Receive(
        std::move(message), deadline, std::nullopt, clock_.Monotonic(), [] {});
    return added.ok() && *added;
  }
  std::optional<MessageFlow::Taken> Take() {
    return flow_->Take(clock_.Monotonic());
  }
  bool EndStepFrees() {
    bool frees = false;
    flow_->EndStep([&] { frees = true; });
    return frees;
  }
  void Complete(uint64_t sequence) {
    flow_->Complete(sequence, 0, true, {10, 1 << 20});
    flow_->Announce(sequence, 1);
  }

  FakeClock clock_;
  v1::SessionLimits limits_;
  SessionEnvironment environment_;
  Traffic traffic_;
  RunLog log_{nullptr, std::make_shared<ServedTime::Tenant>()};
  std::unique_ptr<Pulls> pulls_;
  std::unique_ptr<Uploads> uploads_;
  std::unique_ptr<MessageFlow> flow_;
  uint64_t sent_ = 0;
};

TEST_F(MessageFlowTest, MessagesAreTakenOneAtATimeInOrder) {
  EXPECT_FALSE(flow_->upcoming().has_work);
  EXPECT_TRUE(Receive(Run(1)));
  EXPECT_TRUE(Receive(Read()));
  EXPECT_EQ(flow_->next().queued_runs(), 1u);
  const auto taken = Take();
  ASSERT_TRUE(taken.has_value() && taken->item.has_value());
  EXPECT_TRUE(taken->item->message.has_run());
  // The caller that took the message owns the state.
  EXPECT_FALSE(flow_->upcoming().has_work);
  EXPECT_FALSE(Take().has_value());
  EXPECT_FALSE(flow_->wait(false).has_value());
  flow_->CountRun();
  Complete(1);
  EXPECT_FALSE(EndStepFrees());
  EXPECT_EQ(flow_->next().queued_runs(), 0u);
  EXPECT_EQ(flow_->wait(false)->what(), v1::MessageWait::TURN);
  EXPECT_FALSE(flow_->wait(true).has_value());
}

TEST_F(MessageFlowTest, NextMessageIsKnownUnderAnyLock) {
  v1::Ordered fast = Run(7);
  fast.mutable_run()->set_mode(v1::EXECUTION_MODE_FAST);
  log_.SetPhase(7, v1::PHASE_LLM_DECODE);
  const absl::Duration deadline = clock_.Monotonic() + absl::Seconds(5);
  EXPECT_TRUE(Receive(std::move(fast), deadline));
  EXPECT_TRUE(flow_->next().fast_run());
  EXPECT_EQ(flow_->next().phase(), v1::PHASE_LLM_DECODE);
  EXPECT_EQ(flow_->next().deadline(), deadline);
  EXPECT_EQ(flow_->next().expected(), absl::ZeroDuration());
  for (size_t i = 0; i <= scheduler::RunTimes::kLast; ++i) {
    log_.NoteTime(7, absl::Seconds(6), clock_.Monotonic());
  }
  flow_->Refresh();
  EXPECT_EQ(flow_->next().expected(), absl::Seconds(6));
  EXPECT_EQ(flow_->upcoming().run_deadline, deadline);
}

TEST_F(MessageFlowTest, MessagePutBackForRoomIsNextAgain) {
  EXPECT_TRUE(Receive(Run(1)));
  auto taken = Take();
  EXPECT_EQ(flow_->PutBack(*std::move(taken->item), {.room = true}), 0u);
  EXPECT_FALSE(EndStepFrees());
  EXPECT_EQ(flow_->wait(false)->what(), v1::MessageWait::ROOM);
  EXPECT_EQ(Take()->item->message.sequence(), 1u);
}

TEST_F(MessageFlowTest, RunWaitsForItsGraphAndTakesItAlong) {
  EXPECT_TRUE(Receive(Run(3)));
  auto taken = Take();
  EXPECT_EQ(flow_->PutBack(*std::move(taken->item), {.graph_id = 3}), 0u);
  EXPECT_FALSE(EndStepFrees());
  EXPECT_FALSE(flow_->upcoming().has_work);
  EXPECT_EQ(flow_->wait(false)->what(), v1::MessageWait::GRAPH);
  v1::DefineGraph other;
  other.set_graph_id(4);
  EXPECT_EQ(ErrorReason(flow_->Supply(other).status()), "PROTOCOL_VIOLATION");
  // Another stream repeats the question, so the answer may come twice.
  EXPECT_EQ(Attach(2).need, 3u);
  v1::DefineGraph asked;
  asked.set_graph_id(3);
  EXPECT_TRUE(*flow_->Supply(asked));
  EXPECT_FALSE(*flow_->Supply(asked));
  taken = Take();
  EXPECT_EQ(taken->supply->graph_id(), 3u);
  EXPECT_EQ(taken->item->message.sequence(), 1u);
}

TEST_F(MessageFlowTest, NeedTimesOutWhileTheSessionHasAStream) {
  EXPECT_TRUE(Receive(Run(3)));
  flow_->PutBack(*std::move(Take()->item), {.graph_id = 3});
  EndStepFrees();
  const absl::Duration timeout = absl::Seconds(30);
  clock_.Advance(timeout);
  EXPECT_EQ(ErrorReason(flow_->CheckNeed(clock_.Monotonic(), timeout).status()),
            "NEED_TIMEOUT");
  EXPECT_TRUE(flow_->Detach(1));
  EXPECT_FALSE(*flow_->CheckNeed(clock_.Monotonic(), timeout));
}

TEST_F(MessageFlowTest, ResumeLearnsWhatWasReceivedAndAnnounced) {
  EXPECT_TRUE(Receive(Read()));
  EXPECT_TRUE(Receive(Read()));
  Take();
  const MessageFlow::Completed completed =
      flow_->Complete(1, 0, true, {10, 1 << 20});
  // A stream that is attached now does not know of the completion.
  const MessageFlow::Position position = Attach(2);
  EXPECT_TRUE(position.resumed);
  EXPECT_EQ(position.received, 2u);
  EXPECT_EQ(position.announced, 0u);
  EXPECT_FALSE(flow_->Announce(1, completed.stream));
  // A late call for an older stream has no effect.
  EXPECT_EQ(Attach(1).received, 0u);
  v1::Resume resume;
  resume.set_sent_sequence(1);
  EXPECT_EQ(ErrorReason(flow_->CheckResume(resume, 0)), "PROTOCOL_VIOLATION");
  resume.set_sent_sequence(2);
  EXPECT_TRUE(flow_->CheckResume(resume, 0).ok());
}

TEST_F(MessageFlowTest, CancelForgetsWhatWaitsAndLeavesTheRestToTheStep) {
  EXPECT_TRUE(Receive(Run(1)));
  EXPECT_TRUE(Receive(Run(1)));
  const auto taken = Take();
  bool stopped = false;
  EXPECT_FALSE(flow_->Cancel([&] { stopped = true; }));
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(flow_->over());
  EXPECT_EQ(flow_->next().queued_runs(), 1u);
  EXPECT_FALSE(flow_->PutBack(*taken->item, {}).has_value());
  EXPECT_EQ(flow_->next().queued_runs(), 0u);
  EXPECT_FALSE(flow_->Park(ParkedUpload{}, std::nullopt));
  bool freed = false;
  EXPECT_EQ(flow_->EndStep([&] { freed = true; }), 0u);
  EXPECT_TRUE(freed);
  EXPECT_FALSE(flow_->Fail());
}

TEST_F(MessageFlowTest, DropOfAnIdleSessionIsFinishedByTheCaller) {
  EXPECT_TRUE(Receive(Read()));
  int left = 0;
  EXPECT_TRUE(flow_->Drop([&] { ++left; }));
  EXPECT_EQ(left, 1);
  EXPECT_TRUE(EndStepFrees());
  EXPECT_FALSE(flow_->Drop([&] { ++left; }));
  EXPECT_EQ(left, 1);
  EXPECT_FALSE(Receive(Read()));
  EXPECT_EQ(Attach(5).window.messages(), 0u);
}

}  // namespace
}  // namespace djinn::worker
