#include "coordinator/persistence/election.h"

#include "common/base/error.h"
#include "coordinator/persistence/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

// A store that may be away.
class RemoteStore : public MemoryStore {
 public:
  absl::StatusOr<Lease> Acquire(absl::string_view name, absl::string_view owner,
                                absl::Time now, absl::Duration ttl) override {
    if (away) {
      return MakeError(absl::StatusCode::kUnavailable, "STORE_UNREACHABLE",
                       "no answer");
    }
    return MemoryStore::Acquire(name, owner, now, ttl);
  }
  bool away = false;
};

class ElectionTest : public testing::Test {
 protected:
  // Lets time pass, in steps in which both candidates act.
  void Pass(absl::Duration time) {
    constexpr absl::Duration kStep = absl::Milliseconds(100);
    for (absl::Duration passed; passed < time; passed += kStep) {
      clock_.Advance(kStep);
      a_.Step();
      if (b_acts_) b_.Step();
    }
  }

  FakeClock clock_;
  RemoteStore store_;
  bool b_acts_ = true;
  Election a_{&store_, &clock_, {"1", "host-a:7070", absl::Seconds(5)}};
  Election b_{&store_, &clock_, {"2", "host-b:7070", absl::Seconds(5)}};
};

TEST_F(ElectionTest, OneLeadsAndTheOtherNamesIt) {
  a_.Step();
  b_.Step();
  EXPECT_EQ(a_.view().term, 1u);
  EXPECT_EQ(a_.view().leader, "host-a:7070");
  EXPECT_EQ(b_.view().term, 0u);
  EXPECT_EQ(b_.view().leader, "host-a:7070");
  // The lease is renewed for as long as its holder acts.
  Pass(absl::Minutes(1));
  EXPECT_EQ(a_.view().term, 1u);
  EXPECT_EQ(b_.view().term, 0u);
}

TEST_F(ElectionTest, ASilentLeaderIsFollowedByTheOtherInALaterTerm) {
  b_.Step();
  ASSERT_EQ(b_.view().term, 1u);
  b_acts_ = false;
  Pass(absl::Seconds(4));
  EXPECT_EQ(a_.view().term, 0u);
  EXPECT_EQ(b_.view().term, 1u);
  Pass(absl::Seconds(2));
  EXPECT_EQ(a_.view().term, 2u);
  // The silent one knows by its own clock that it leads no longer, and not who
  // does.
  EXPECT_EQ(b_.view().term, 0u);
  EXPECT_EQ(b_.view().leader, "");
  b_.Step();
  EXPECT_EQ(b_.view().leader, "host-a:7070");
}

TEST_F(ElectionTest, WithoutTheStoreNobodyLeadsForLongerThanTheLease) {
  a_.Step();
  b_.Step();
  store_.away = true;
  Pass(absl::Seconds(4));
  EXPECT_EQ(a_.view().term, 1u);
  EXPECT_EQ(a_.view().failure, "no answer");
  Pass(absl::Seconds(2));
  EXPECT_EQ(a_.view().term, 0u);
  EXPECT_EQ(b_.view().term, 0u);
  EXPECT_EQ(b_.view().failure, "no answer");
  store_.away = false;
  Pass(absl::Milliseconds(100));
  EXPECT_NE(a_.view().term == 0, b_.view().term == 0);
  EXPECT_EQ(a_.view().failure, "");
}

TEST_F(ElectionTest, ALeaderThatStopsLetsTheOtherLeadAtOnce) {
  a_.Step();
  b_.Step();
  a_.Stop();
  EXPECT_EQ(a_.view().term, 0u);
  b_.Step();
  EXPECT_EQ(b_.view().term, 2u);
}

}  // namespace
}  // namespace djinn::coordinator
