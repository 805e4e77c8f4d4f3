#include "coordinator/persistence/state_keeper.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "coordinator/persistence/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A store whose disk can fail.
class FailingStore : public MemoryStore {
 public:
  absl::StatusOr<uint64_t> Commit(absl::Span<const Write> writes) override {
    if (full) {
      return MakeError(absl::StatusCode::kResourceExhausted, "STORE_FULL",
                       "no room");
    }
    writes_seen += writes.size();
    absl::StatusOr<uint64_t> revision = MemoryStore::Commit(writes);
    if (revision.ok() && answers_lost) {
      return MakeError(absl::StatusCode::kUnavailable, "STORE_UNREACHABLE",
                       "no answer");
    }
    return revision;
  }
  bool answers_lost = false;
  bool full = false;
  size_t writes_seen = 0;
};

class StateKeeperTest : public testing::Test {
 protected:
  StateKeeperTest()
      : keeper_(StateKeeper::Open(&store_, &clock_, "a").value()) {}

  // Starts without letting the thread write by itself, because the clock stands
  // still.
  void Start() {
    keeper_->Start([this] {
      MutexLock lock(&mu_);
      return state_;
    });
  }
  void Set(const std::string& key, const std::string& value) {
    MutexLock lock(&mu_);
    state_[key] = value;
  }

  FakeClock clock_;
  FailingStore store_;
  Mutex mu_;
  StateKeeper::State state_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<StateKeeper> keeper_;
};

TEST_F(StateKeeperTest, WritesWhatChanged) {
  Set("a", "1");
  Set("b", "1");
  Start();
  ASSERT_TRUE(keeper_->Write().ok());
  EXPECT_THAT(*keeper_->Read(),
              UnorderedElementsAre(Pair("a", "1"), Pair("b", "1")));
  const size_t before = store_.writes_seen;
  ASSERT_TRUE(keeper_->Write().ok());
  EXPECT_EQ(store_.writes_seen, before);
  Set("a", "2");
  {
    MutexLock lock(&mu_);
    state_.erase("b");
  }
  ASSERT_TRUE(keeper_->Write().ok());
  // The two that changed, and the fence.
  EXPECT_EQ(store_.writes_seen, before + 3);
  EXPECT_THAT(*keeper_->Read(), UnorderedElementsAre(Pair("a", "2")));
}

TEST_F(StateKeeperTest, WritesByItselfAndWhenItStops) {
  Start();
  Set("a", "1");
  for (int i = 0; i < 1000 && keeper_->Read()->empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_THAT(*keeper_->Read(), UnorderedElementsAre(Pair("a", "1")));
  Set("b", "1");
  keeper_->Stop();
  EXPECT_EQ(store_.Get("b")->size(), 1u);
}

TEST_F(StateKeeperTest, CatchesUpAfterAFailure) {
  Start();
  ASSERT_TRUE(keeper_->Write().ok());
  store_.full = true;
  Set("a", "1");
  EXPECT_EQ(ErrorReason(keeper_->Write()), "STORE_FULL");
  for (int i = 0; i < 1000 && keeper_->failure().empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(keeper_->failure(), "no room");
  Exposition out;
  keeper_->Collect(&out);
  EXPECT_THAT(out.Text(),
              HasSubstr("djinn_store_writes_total{result=\"store_full\"}"));
  EXPECT_THAT(out.Text(),
              HasSubstr("djinn_coordinator_leader_transitions_total 1\n"));
  store_.full = false;
  keeper_->Stop();
  EXPECT_EQ(keeper_->failure(), "");
  EXPECT_EQ(store_.Get("a")->at(0).value, "1");
}

TEST_F(StateKeeperTest, CountersOfResultsBeginAtZero) {
  Exposition out;
  keeper_->Collect(&out);
  for (const char* result :
       {"ok", "leadership_lost", "store_bad_key", "store_conflict",
        "store_corrupt", "store_full", "store_io", "store_lease_held",
        "store_locked", "store_unreachable", "store_unusable"}) {
    EXPECT_THAT(out.Text(),
                HasSubstr(absl::StrCat("djinn_store_writes_total{result=\"",
                                       result, "\"} 0\n")));
  }
}

TEST_F(StateKeeperTest, SaysWhatIsKeptAndNothingElse) {
  // The state that was requested last, and the part of it that was reported as
  // saved.
  std::string asked, kept;
  keeper_->Start(
      [&] {
        MutexLock lock(&mu_);
        if (state_.contains("a")) asked = state_["a"];
        return state_;
      },
      [&] {
        MutexLock lock(&mu_);
        kept = asked;
      });
  const auto is_kept = [&] {
    MutexLock lock(&mu_);
    return kept;
  };
  Set("a", "1");
  ASSERT_TRUE(keeper_->Write().ok());
  EXPECT_EQ(is_kept(), "1");
  store_.full = true;
  Set("a", "2");
  EXPECT_FALSE(keeper_->Write().ok());
  EXPECT_EQ(is_kept(), "1");
  store_.full = false;
  keeper_->Stop();
  EXPECT_EQ(is_kept(), "2");
}

TEST_F(StateKeeperTest, TheNextProcessHasAnotherTerm) {
  EXPECT_EQ(keeper_->term(), 1u);
  EXPECT_EQ(ErrorReason(StateKeeper::Open(&store_, &clock_, "b").status()),
            "STORE_LEASE_HELD");
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ((*StateKeeper::Open(&store_, &clock_, "b"))->term(), 2u);
  // A process that lost the lease no longer writes.
  Start();
  EXPECT_FALSE(keeper_->Write().ok());
  EXPECT_TRUE(keeper_->lost());
}

TEST_F(StateKeeperTest, ALateWriteOfASupersededProcessChangesNothing) {
  Start();
  Set("a", "1");
  ASSERT_TRUE(keeper_->Write().ok());
  // The lease was not renewed, and another process took it. The clock of this
  // process does not show that its lease has ended.
  ASSERT_TRUE(store_.Release(StateKeeper::kLeader, "a").ok());
  auto next = StateKeeper::Open(&store_, &clock_, "b").value();
  EXPECT_EQ(next->term(), 2u);
  Set("a", "2");
  EXPECT_EQ(ErrorReason(keeper_->Write()), "LEADERSHIP_LOST");
  EXPECT_TRUE(keeper_->lost());
  EXPECT_EQ(store_.Get("a")->at(0).value, "1");
  EXPECT_EQ(ErrorReason(keeper_->Write()), "LEADERSHIP_LOST");
  EXPECT_FALSE(next->lost());
  EXPECT_THAT(*next->Read(), UnorderedElementsAre(Pair("a", "1")));
}

TEST_F(StateKeeperTest, AWriteWhoseAnswerWasLostIsNoConflict) {
  Start();
  Set("a", "1");
  ASSERT_TRUE(keeper_->Write().ok());
  store_.answers_lost = true;
  Set("a", "2");
  keeper_->Write().IgnoreError();
  EXPECT_EQ(store_.Get("a")->at(0).value, "2");
  store_.answers_lost = false;
  Set("b", "1");
  ASSERT_TRUE(keeper_->Write().ok());
  EXPECT_FALSE(keeper_->lost());
  EXPECT_THAT(*keeper_->Read(),
              UnorderedElementsAre(Pair("a", "2"), Pair("b", "1")));
}

}  // namespace
}  // namespace djinn::coordinator
