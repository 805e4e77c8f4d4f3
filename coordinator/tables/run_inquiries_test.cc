#include "coordinator/tables/run_inquiries.h"

#include <string>

#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

TEST(RunInquiriesTest, OnlySoManyWait) {
  RunInquiries inquiries;
  bool over = false;
  Wakes wakes;
  const auto ask = [&](absl::Duration now) {
    return inquiries.Ask(
        "s1", {{"w0", true}}, now,
        [&](const RunInquiries::Answers&) { over = true; }, &wakes);
  };
  for (size_t i = 0; i < RunInquiries::kMost; ++i) {
    EXPECT_TRUE(ask(absl::ZeroDuration()).ok());
  }
  EXPECT_EQ(ErrorReason(ask(absl::ZeroDuration())), "TOO_MANY_QUESTIONS");
  EXPECT_FALSE(over);
  inquiries.Expire(RunInquiries::kPatience, &wakes);
  EXPECT_TRUE(ask(absl::Seconds(100)).ok());
}

TEST(RunInquiriesTest, OversizedAnswerIsRefused) {
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
