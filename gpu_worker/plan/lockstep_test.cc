#include "gpu_worker/plan/lockstep.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class Weight : public Buffer {
  uint64_t size_bytes() const override { return 4; }
};

// Records events in order, with a clock that every step advances.
struct Story {
  std::vector<std::string> lines;
  absl::Duration now;

  void Tell(std::string line, absl::Duration took) {
    lines.push_back(std::move(line));
    now += took;
  }
};

// A run that a string of nodes describes. '.' is a node of its own, which takes
// 1 s; a letter is a product with that weight, which takes 3 s alone; 'X' fails
// before it is called.
class FakeRun : public OngoingRun {
 public:
  FakeRun(std::string name, std::string nodes, int64_t rows,
          const std::vector<Weight>& weights, Story* story)
      : name_(std::move(name)), nodes_(std::move(nodes)), story_(story) {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i] == '.') continue;
      const bool fails = nodes_[i] == 'X';
      products_.push_back(
          {i, rows, 0, &weights[fails ? 0 : nodes_[i] - 'a'], 0});
    }
  }

  void set_cramped() { cramped_ = true; }
  void set_cancelled_at(uint32_t node) { cancelled_at_ = node; }

  const std::vector<Product>& products() const override { return products_; }
  void Begin() override {}
  bool cramped() const override { return cramped_; }
  const Product* Advance() override {
    for (; next_ < nodes_.size() && next_ < cancelled_at_; ++next_) {
      if (nodes_[next_] != '.') return Next();
      story_->Tell(absl::StrCat(name_, "."), absl::Seconds(1));
    }
    return nullptr;
  }
  void RunProduct() override {
    story_->Tell(name_ + nodes_[next_++], absl::Seconds(3));
  }
  bool StageProduct(JoinedCall* call) override {
    if (nodes_[next_] == 'X') {
      ++next_;
      story_->Tell(absl::StrCat(name_, " fails"), absl::Seconds(1));
      return false;
    }
    call->node = next_;
    return true;
  }
  void SettleProduct(const JoinedCall& call) override {
    if (!call.done) return RunProduct();
    ++next_;
  }
  void Finish(v1::RunMetadata*) override {}

 private:
  const Product* Next() const {
    for (const Product& product : products_) {
      if (product.node == next_) return &product;
    }
    return nullptr;
  }

  const std::string name_;
  const std::string nodes_;
  Story* const story_;
  std::vector<Product> products_;
  uint32_t next_ = 0;
  uint32_t cancelled_at_ = UINT32_MAX;
  bool cramped_ = false;
};

// Takes 4 s and a nanosecond for every joined product.
class FakeLibrary : public OperatorLibrary {
 public:
  explicit FakeLibrary(Story* story) : story_(story) {}
  // Leaves the last call of each product undone.
  void LeaveOut() { leaves_out_ = true; }

  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Graph&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<uint64_t> GeneratorBytes() override { return 0; }
  absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(uint64_t) override {
    return absl::UnimplementedError("");
  }
  absl::Status CheckGenerator(absl::string_view) override {
    return absl::OkStatus();
  }
  void ExecuteJoined(absl::Span<JoinedCall> calls) override {
    story_->Tell("joined", absl::Seconds(4) + absl::Nanoseconds(1));
    for (JoinedCall& call : calls) call.done = true;
    if (leaves_out_) calls.back().done = false;
  }

 private:
  Story* const story_;
  bool leaves_out_ = false;
};

class LockstepTest : public testing::Test {
 protected:
  FakeRun* Add(const std::string& name, const std::string& nodes,
               int64_t rows = 1) {
    runs_.push_back(
        std::make_unique<FakeRun>(name, nodes, rows, weights_, &story_));
    members_.push_back({runs_.back().get()});
    return runs_.back().get();
  }

  // Executes the runs and returns the story in a line.
  std::string Execute() {
    products_ = ExecuteInLockstep(
        absl::MakeSpan(members_), &library_,
        {.now = [this] { return story_.now; },
         .done =
             [this](size_t member) {
               story_.lines.push_back(absl::StrCat("end", member));
             },
         .joined =
             [this](absl::Span<const size_t> members, int64_t rows) {
               absl::StrAppend(&story_.lines.back(), members.size(), "x", rows);
             }});
    absl::Duration used;
    for (const LockstepMember& member : members_) used += member.used;
    EXPECT_EQ(used, story_.now);
    std::string all;
    for (const std::string& line : story_.lines) {
      absl::StrAppend(&all, all.empty() ? "" : " ", line);
    }
    return all;
  }

  Story story_;
  absl::Duration products_;
  FakeLibrary library_{&story_};
  std::vector<Weight> weights_{4};
  std::vector<std::unique_ptr<FakeRun>> runs_;
  std::vector<LockstepMember> members_;
};

TEST_F(LockstepTest, ProductsOfOneWeightBecomeOne) {
  Add("A", ".a.b");
  Add("B", ".a.b");
  EXPECT_EQ(Execute(), "A. B. joined2x2 A. B. joined2x2 end0 end1");
}

TEST_F(LockstepTest, EachIsChargedItsOwnNodesAndItsRows) {
  Add("A", "..a", 1);
  Add("B", ".a...", 2);
  Add("C", "a", 1);
  EXPECT_EQ(Execute(), "A. A. B. joined3x4 end0 B. B. B. end1 end2");
  EXPECT_EQ(members_[0].used, absl::Seconds(3));
  EXPECT_EQ(members_[1].used, absl::Seconds(6));
  // The last member takes the nanosecond that cannot be divided.
  EXPECT_EQ(members_[2].used, absl::Seconds(1) + absl::Nanoseconds(1));
}

TEST_F(LockstepTest, TellsWhatTheProductsTook) {
  Add("A", "..ab.");
  Add("B", "a.");
  EXPECT_EQ(Execute(), "A. A. joined2x2 B. end1 Ab A. end0");
  EXPECT_EQ(products_, absl::Seconds(7) + absl::Nanoseconds(1));
}

TEST_F(LockstepTest, RunsOfOtherGraphsMeetAtTheirWeights) {
  // Decoders whose caches have grown to different sizes look like this.
  Add("A", "a...b.c");
  Add("B", ".a.b..c.");
  EXPECT_EQ(Execute(),
            "B. joined2x2 A. A. A. B. joined2x2 A. B. B. joined2x2 end0 B. "
            "end1");
}

TEST_F(LockstepTest, RunAheadWaitsForALaterCall) {
  Add("A", "bc");
  Add("B", "abc");
  EXPECT_EQ(Execute(), "Ba joined2x2 joined2x2 end0 end1");
}

TEST_F(LockstepTest, MemberDoesNotWaitForOneThatWillNotCome) {
  Add("A", "ab");
  Add("B", "bcc");
  EXPECT_EQ(Execute(), "Aa joined2x2 end0 Bc Bc end1");
}

TEST_F(LockstepTest, RunsThatWaitForEachOtherContinue) {
  Add("A", "ab");
  Add("B", "ba");
  EXPECT_EQ(Execute(), "Aa joined2x2 end0 Ba end1");
}

TEST_F(LockstepTest, LoneMemberIsExecuted) {
  Add("A", ".a.");
  EXPECT_EQ(Execute(), "A. Aa A. end0");
}

TEST_F(LockstepTest, ARunWithoutNodesEndsAtOnce) {
  Add("A", "");
  Add("B", "a");
  EXPECT_EQ(Execute(), "end0 Ba end1");
}

TEST_F(LockstepTest, RunThatFailsEarlierIsLeftOut) {
  Add("A", "a");
  Add("B", "X.");
  Add("C", "a");
  EXPECT_EQ(Execute(), "B fails joined2x2 end0 B. end1 end2");
}

TEST_F(LockstepTest, OnlyMemberLeftAfterFailuresIsExecutedAlone) {
  Add("A", "a");
  Add("B", "X");
  EXPECT_EQ(Execute(), "B fails Aa end0 end1");
}

TEST_F(LockstepTest, MemberThatTheLibraryLeavesOutIsExecutedAlone) {
  library_.LeaveOut();
  Add("A", "a");
  Add("B", "a");
  Add("C", "a");
  EXPECT_EQ(Execute(), "joined2x2 Ca end0 end1 end2");
  EXPECT_EQ(members_[2].used, absl::Seconds(3));
}

TEST_F(LockstepTest, CancelledMemberDelaysNoOther) {
  Add("A", "a.b");
  Add("B", "a.b")->set_cancelled_at(1);
  EXPECT_EQ(Execute(), "joined2x2 A. end1 Ab end0");
}

TEST_F(LockstepTest, RunWithoutRoomContinuesAfterTheOthers) {
  Add("A", "a.")->set_cramped();
  Add("B", "a.");
  EXPECT_EQ(Execute(), "Ba B. end1 Aa A. end0");
}

class SharedProductsTest : public testing::Test {
 protected:
  // Returns whether the runs suit each other. A letter is a product with that
  // weight.
  bool Suit(const std::string& own, const std::string& others) {
    return SharedProducts(Products(own)).Suit(Products(others));
  }
  std::vector<OngoingRun::Product> Products(const std::string& weights) {
    std::vector<OngoingRun::Product> products;
    for (const char weight : weights) {
      products.push_back({.weight = &weights_[weight - 'a']});
    }
    return products;
  }

  std::vector<Weight> weights_{26};
};

TEST_F(SharedProductsTest, RunsOfOneModelSuit) {
  EXPECT_TRUE(Suit("abcd", "abcd"));
  EXPECT_TRUE(Suit("abcd", "dcba"));
  EXPECT_TRUE(Suit("abab", "ab"));
}

TEST_F(SharedProductsTest, HalfOfEitherIsEnough) {
  EXPECT_TRUE(Suit("abcd", "ab"));
  EXPECT_TRUE(Suit("ab", "abcd"));
  EXPECT_TRUE(Suit("abcd", "abxy"));
  EXPECT_FALSE(Suit("abcd", "abxyz"));
  EXPECT_FALSE(Suit("abcde", "abxy"));
}

TEST_F(SharedProductsTest, OneInCommonIsNotEnough) {
  // A decoder, and a prompt whose products share only the output matrix.
  EXPECT_FALSE(Suit("abcdh", "h"));
  EXPECT_FALSE(Suit("h", "abcdh"));
  EXPECT_FALSE(Suit("abcdh", "hhhhh"));
}

TEST_F(SharedProductsTest, AnotherWeightOrAnotherViewOfItIsAnotherProduct) {
  EXPECT_FALSE(Suit("a", "b"));
  std::vector<OngoingRun::Product> other = Products("a");
  other[0].kind = 1;
  EXPECT_FALSE(SharedProducts(Products("a")).Suit(other));
}

TEST_F(SharedProductsTest, EmptyProductsDoNotSuit) {
  EXPECT_FALSE(Suit("a", ""));
  EXPECT_FALSE(Suit("", "a"));
  EXPECT_FALSE(Suit("", ""));
}

}  // namespace
}  // namespace djinn::worker
