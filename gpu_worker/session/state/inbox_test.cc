#include "gpu_worker/session/state/inbox.h"

#include <utility>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(5);

v1::SessionLimits Limits() {
  v1::SessionLimits limits;
  limits.set_max_outstanding_bytes(1 << 20);
  return limits;
}

class InboxTest : public testing::Test {
 protected:
  InboxTest() { inbox_.Grant({.messages = 10, .bytes = 1 << 20}); }

  void Add(v1::Ordered message,
           absl::Duration deadline = absl::InfiniteDuration()) {
    message.set_sequence(inbox_.received() + 1);
    EXPECT_TRUE(inbox_.Add(std::move(message), deadline).ok());
  }
  void AddRun(v1::ExecutionMode mode) {
    v1::Ordered message;
    message.mutable_run()->set_mode(mode);
    Add(std::move(message), kDeadline);
  }
  void AddFree(uint64_t storage) {
    v1::Ordered message;
    message.mutable_free()->add_storages(storage);
    Add(std::move(message));
  }
  void AddRead() {
    v1::Ordered message;
    message.mutable_read();
    Add(std::move(message));
  }

  Inbox inbox_{Limits()};
};

TEST_F(InboxTest, ARunWithSwitchesJoinsNoBatch) {
  v1::Ordered message;
  message.mutable_run()->set_mode(v1::EXECUTION_MODE_FAST);
  message.mutable_run()->mutable_switches()->set_flush_denormal(true);
  Add(std::move(message));
  EXPECT_FALSE(inbox_.fast_run_next());
  inbox_.Take();
  AddRun(v1::EXECUTION_MODE_FAST);
  EXPECT_TRUE(inbox_.fast_run_next());
}

TEST_F(InboxTest, LooksPastWhatIsFreed) {
  EXPECT_FALSE(inbox_.fast_run_next());
  AddFree(1);
  AddFree(2);
  EXPECT_TRUE(inbox_.free_next());
  EXPECT_FALSE(inbox_.fast_run_next());
  EXPECT_EQ(inbox_.deadline(), absl::InfiniteDuration());
  AddRun(v1::EXECUTION_MODE_FAST);
  EXPECT_TRUE(inbox_.fast_run_next());
  EXPECT_EQ(inbox_.deadline(), kDeadline);
  // The Frees come first all the same.
  EXPECT_EQ(inbox_.Take().message.free().storages_size(), 2);
  EXPECT_FALSE(inbox_.free_next());
  EXPECT_TRUE(inbox_.fast_run_next());
}

TEST_F(InboxTest, LooksPastNothingElse) {
  AddFree(1);
  AddRead();
  AddRun(v1::EXECUTION_MODE_FAST);
  EXPECT_FALSE(inbox_.fast_run_next());
  EXPECT_FALSE(inbox_.read_next());
  inbox_.Take();
  EXPECT_TRUE(inbox_.read_next());
  EXPECT_FALSE(inbox_.fast_run_next());
}

TEST_F(InboxTest, AStrictRunIsNoFastOne) {
  AddFree(1);
  AddRun(v1::EXECUTION_MODE_STRICT);
  EXPECT_FALSE(inbox_.fast_run_next());
  EXPECT_EQ(inbox_.deadline(), kDeadline);
}

}  // namespace
}  // namespace djinn::worker
