#include "coordinator/tables/run_inquiries.h"

#include <memory>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

class RunInquiriesTest : public testing::Test {
 protected:
  // The result of an inquiry, once it is over.
  using Outcome = std::shared_ptr<std::optional<RunInquiries::Answers>>;

  Outcome Ask(const std::vector<RunInquiries::Asked>& workers,
              absl::Duration now = absl::ZeroDuration()) {
    auto outcome = std::make_shared<std::optional<RunInquiries::Answers>>();
    Wakes wakes;
    asked_ = inquiries_.Ask(
        "s1", workers, now,
        [outcome](const RunInquiries::Answers& answers) {
          EXPECT_FALSE(outcome->has_value());
          *outcome = answers;
        },
        &wakes);
    return outcome;
  }
  v1::DesiredState ListFor(const std::string& worker) {
    v1::DesiredState desired;
    inquiries_.List(worker, &desired);
    return desired;
  }
  // Returns the worker's answers to all its questions.
  static v1::WorkerState Answer(const v1::DesiredState& desired) {
    v1::WorkerState state;
    for (const v1::RunsQuestion& question : desired.runs_questions()) {
      v1::RunsAnswer* const answer = state.add_runs_answers();
      answer->set_question_id(question.question_id());
      answer->add_leases()->set_lease_id("l1");
    }
    return state;
  }
  bool Take(const std::string& worker, const v1::WorkerState& state) {
    Wakes wakes;
    return inquiries_.Take(worker, state, &wakes);
  }
  void Expire(absl::Duration now) {
    Wakes wakes;
    inquiries_.Expire(now, &wakes);
  }

  RunInquiries inquiries_;
  absl::Status asked_;
};

TEST_F(RunInquiriesTest, AWorkerIsAskedUntilItAnswers) {
  const Outcome outcome = Ask({{"w0", true}});
  EXPECT_EQ(ListFor("w1").runs_questions_size(), 0);
  const v1::DesiredState desired = ListFor("w0");
  ASSERT_EQ(desired.runs_questions_size(), 1);
  EXPECT_EQ(desired.runs_questions(0).session_id(), "s1");
  EXPECT_NE(desired.runs_questions(0).question_id(), 0u);
  // The worker is asked again after a broken stream.
  EXPECT_EQ(ListFor("w0").runs_questions_size(), 1);
  EXPECT_FALSE(Take("w0", v1::WorkerState()));
  EXPECT_FALSE(outcome->has_value());
  EXPECT_TRUE(Take("w0", Answer(desired)));
  ASSERT_TRUE(outcome->has_value());
  EXPECT_EQ((*outcome)->at("w0")->leases(0).lease_id(), "l1");
  EXPECT_EQ(ListFor("w0").runs_questions_size(), 0);
  EXPECT_EQ(inquiries_.size(), 0u);
  // A repeated answer belongs to no inquiry.
  EXPECT_TRUE(Take("w0", Answer(desired)));
}

TEST_F(RunInquiriesTest, AllThatAreAskedAreAwaited) {
  const Outcome outcome = Ask({{"w0", true}, {"w1", true}});
  EXPECT_TRUE(Take("w0", Answer(ListFor("w0"))));
  EXPECT_FALSE(outcome->has_value());
  EXPECT_EQ(ListFor("w0").runs_questions_size(), 0);
  EXPECT_EQ(ListFor("w1").runs_questions_size(), 1);
  EXPECT_TRUE(Take("w1", Answer(ListFor("w1"))));
  EXPECT_TRUE(outcome->has_value());
}

TEST_F(RunInquiriesTest, AnswerForAnotherWorkerIsIgnored) {
  const Outcome outcome = Ask({{"w0", true}});
  Take("w1", Answer(ListFor("w0")));
  EXPECT_FALSE(outcome->has_value());
}

TEST_F(RunInquiriesTest, AWorkerThatNeverAnswersIsNamed) {
  const Outcome outcome = Ask({{"w0", true}, {"w1", true}}, absl::Seconds(10));
  EXPECT_TRUE(Take("w1", Answer(ListFor("w1"))));
  Expire(absl::Seconds(10) + RunInquiries::kPatience - absl::Nanoseconds(1));
  EXPECT_FALSE(outcome->has_value());
  const v1::DesiredState desired = ListFor("w0");
  Expire(absl::Seconds(10) + RunInquiries::kPatience);
  ASSERT_TRUE(outcome->has_value());
  EXPECT_TRUE((*outcome)->at("w1").ok());
  const absl::Status silent = (*outcome)->at("w0").status();
  EXPECT_EQ(silent.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ErrorReason(silent), "WORKER_SILENT");
  EXPECT_NE(silent.message().find("worker w0"), std::string::npos) << silent;
  EXPECT_EQ(ListFor("w0").runs_questions_size(), 0);
  // The answer is too late.
  Take("w0", Answer(desired));
}

TEST_F(RunInquiriesTest, AWorkerThatIsAwayIsNotWaitedFor) {
  const Outcome outcome = Ask({{"w0", false}});
  ASSERT_TRUE(outcome->has_value());
  const absl::Status lost = (*outcome)->at("w0").status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST");
  EXPECT_NE(lost.message().find("worker w0"), std::string::npos) << lost;
  const Outcome both = Ask({{"w0", false}, {"w1", true}});
  EXPECT_FALSE(both->has_value());
  EXPECT_EQ(ListFor("w0").runs_questions_size(), 0);
  EXPECT_TRUE(Take("w1", Answer(ListFor("w1"))));
  EXPECT_EQ(ErrorReason((*both)->at("w0").status()), "WORKER_LOST");
}

TEST_F(RunInquiriesTest, OnlySoManyWait) {
  for (size_t i = 0; i < RunInquiries::kMost; ++i) {
    Ask({{"w0", true}});
    EXPECT_TRUE(asked_.ok());
  }
  const Outcome outcome = Ask({{"w0", true}});
  EXPECT_EQ(ErrorReason(asked_), "TOO_MANY_QUESTIONS");
  EXPECT_FALSE(outcome->has_value());
  Expire(RunInquiries::kPatience);
  Ask({{"w0", true}}, absl::Seconds(100));
  EXPECT_TRUE(asked_.ok());
}

TEST_F(RunInquiriesTest, AllEndWithTheCoordinator) {
  const Outcome outcome = Ask({{"w0", true}});
  {
    Wakes wakes;
    inquiries_.End(absl::UnavailableError("stops"), &wakes);
    EXPECT_FALSE(outcome->has_value());
  }
  ASSERT_TRUE(outcome->has_value());
  EXPECT_EQ((*outcome)->at("w0").status(), absl::UnavailableError("stops"));
}

TEST_F(RunInquiriesTest, WhatIsTooMuchIsRefused) {
  v1::WorkerState good;
  v1::LeaseRuns* const lease = good.add_runs_answers()->add_leases();
  lease->add_runs()->add_preemptions()->set_session_id("5e6f7a8b");
  EXPECT_TRUE(RunInquiries::Check(good).ok());
  const std::string text(5000, 'x');
  const auto refused = [&](auto spoil) {
    v1::WorkerState state = good;
    v1::LeaseRuns* const runs =
        state.mutable_runs_answers(0)->mutable_leases(0);
    spoil(&state, runs, runs->mutable_runs(0));
    return ErrorReason(RunInquiries::Check(state)) == "PROTOCOL_VIOLATION";
  };
  EXPECT_TRUE(refused([](auto* state, auto*, auto*) {
    for (int i = 0; i < 100; ++i) state->add_runs_answers();
  }));
  EXPECT_TRUE(refused([](auto*, auto* runs, auto*) {
    for (int i = 0; i < 100; ++i) runs->add_runs();
  }));
  EXPECT_TRUE(refused([](auto*, auto*, auto* run) {
    for (int i = 0; i < 100; ++i) run->add_waits();
  }));
  EXPECT_TRUE(refused([&](auto*, auto* runs, auto*) {
    runs->mutable_wait()->set_served_tenant(text);
  }));
  EXPECT_TRUE(refused([&](auto*, auto*, auto* run) {
    run->mutable_failure()->set_message(text);
  }));
  EXPECT_TRUE(refused([&](auto*, auto*, auto* run) {
    run->mutable_preemptions(0)->set_tenant(text);
  }));
  EXPECT_TRUE(refused([&](auto*, auto*, auto* run) {
    run->add_companions()->set_session_id(text);
  }));
}

}  // namespace
}  // namespace djinn::coordinator
