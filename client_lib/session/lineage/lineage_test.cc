#include "client_lib/session/lineage/lineage.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/session/lineage/lineage_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::ElementsAre;

// An upload, of which a hash is enough.
struct UploadPayload : Lineage::Payload {
  explicit UploadPayload(uint64_t size) : bytes(size) {}
  uint64_t Shrink() override { return std::exchange(bytes, 0); }
  bool has_bytes() const override { return bytes > 0; }
  uint64_t bytes;
};

TEST(LineageTest, AFreedStorageLetsItsChainGo) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1)}));
  lineage.Add(2, MessageOf({Reads(1, 1), Creates(2)}));
  lineage.Add(3, MessageOf({Updates(2, 1)}));
  lineage.Executed(3);
  lineage.Free({1});
  EXPECT_THAT(Kept(lineage), ElementsAre(1, 2, 3));
  lineage.Free({2});
  EXPECT_THAT(Kept(lineage), ElementsAre());
  EXPECT_EQ(lineage.bytes(), 0);
}

TEST(LineageTest, AnOverwriteCutsTheChain) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1)}));
  lineage.Add(2, MessageOf({Updates(1, 1)}));
  lineage.Add(3, MessageOf({Overwrites(1, 2)}));
  lineage.Executed(3);
  EXPECT_THAT(Kept(lineage), ElementsAre(3));
}

TEST(LineageTest, AMessageStaysUntilItIsExecutedAndAnswered) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1)}), {1});
  lineage.Add(2, MessageOf({Creates(2)}));
  lineage.Add(3, MessageOf({Reads(2, 1)}, /*awaits_answer=*/true));
  lineage.Free({2});
  EXPECT_THAT(Kept(lineage), ElementsAre(1, 2, 3));
  EXPECT_EQ(lineage.FindPending(1), &lineage.nodes().front());
  lineage.Executed(3);
  EXPECT_THAT(Kept(lineage), ElementsAre(2, 3));
  EXPECT_EQ(lineage.FindPending(3), &lineage.nodes().back());
  EXPECT_EQ(lineage.FindPending(2), nullptr);
  lineage.Answered(3);
  EXPECT_THAT(Kept(lineage), ElementsAre());
}

TEST(LineageTest, ANodeHasItsNumberAtTheNewWorker) {
  Lineage lineage(kAmple);
  lineage.Add(5, MessageOf({Creates(1)}));
  lineage.Add(6, MessageOf({Updates(1, 1)}));
  lineage.Executed(5);
  lineage.BeginAnew();
  uint64_t sequence = 0;
  for (Lineage::Node& node : lineage.nodes()) {
    lineage.Resent(&node, ++sequence);
  }
  EXPECT_EQ(lineage.FindPending(1), nullptr);
  EXPECT_EQ(lineage.FindPending(2), &lineage.nodes().back());
  lineage.Executed(2);
  EXPECT_FALSE(lineage.has_unexecuted());
  EXPECT_THAT(Kept(lineage), ElementsAre(1, 2));
}

TEST(LineageTest, UploadsShrinkBeforeChainsAreDropped) {
  Lineage lineage(10'000);
  for (uint64_t i = 1; i <= 3; ++i) {
    Lineage::Message upload = MessageOf({Creates(i)}, false, 6'000);
    upload.payload = std::make_unique<UploadPayload>(6'000);
    lineage.Add(i, std::move(upload));
    lineage.Executed(i);
  }
  EXPECT_TRUE(lineage.complete());
  EXPECT_LT(lineage.bytes(), 10'000);
  EXPECT_EQ(lineage.hash_only_nodes(), 2);
  // Nothing is left that can shrink.
  lineage.Add(4, MessageOf({Creates(4)}, false, 9'500));
  EXPECT_FALSE(lineage.complete());
}

TEST(LineageTest, WithoutAMessageWhatDependsOnItIsIncompleteUntilOverwritten) {
  Lineage lineage(kAmple);
  Lineage::Message lost = MessageOf({Creates(1)});
  lost.payload = nullptr;
  lineage.Add(1, std::move(lost));
  lineage.Add(2, MessageOf({Reads(1, 1), Creates(2)}));
  lineage.Add(3, MessageOf({Creates(3)}));
  lineage.Executed(3);
  EXPECT_FALSE(lineage.complete());
  EXPECT_EQ(lineage.incomplete_storages(), 2);
  lineage.Add(4, MessageOf({Overwrites(1, 1)}));
  EXPECT_EQ(lineage.incomplete_storages(), 1);
  lineage.Free({2});
  EXPECT_TRUE(lineage.complete());
  lineage.Executed(4);
  EXPECT_THAT(Kept(lineage), ElementsAre(3, 4));
}

TEST(LineageTest, AnErrorSpreadsToWhatDependsOnIt) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1)}));
  lineage.Add(2, MessageOf({Creates(2)}));
  lineage.Add(3, MessageOf({Reads(1, 1), Creates(3)}));
  lineage.Taint(&lineage.nodes().front(), absl::DataLossError("differs"));
  lineage.Add(4, MessageOf({Reads(3, 1), Creates(4)}));
  lineage.Add(5, MessageOf({Reads(2, 1), Creates(5)}));
  std::vector<bool> bad;
  for (const Lineage::Node& node : lineage.nodes()) {
    bad.push_back(!node.error.ok());
  }
  EXPECT_THAT(bad, ElementsAre(true, false, true, true, false));
}

TEST(LineageTest, TheBudgetIsKeptAndTheOldestChainGoesFirst) {
  constexpr uint64_t kBudget = 100'000;
  Lineage lineage(kBudget);
  // A loop that updates storage 1, and a value that does not depend on it.
  lineage.Add(1, MessageOf({Creates(1)}, false, 100));
  for (uint64_t i = 2; i < 2000; ++i) {
    lineage.Add(i, MessageOf({Updates(1, i - 1)}, false, 100));
    lineage.Executed(i);
    ASSERT_LE(lineage.bytes(), kBudget);
  }
  EXPECT_FALSE(lineage.complete());
  EXPECT_EQ(lineage.size(), 1);
  lineage.Add(2000, MessageOf({Creates(2)}, false, 100));
  EXPECT_EQ(lineage.incomplete_storages(), 1);
}

// Anchors the storage's current value, as if it had been read.
void Anchor(Lineage& lineage, const std::vector<uint64_t>& storages,
            uint64_t bytes = 0) {
  std::vector<Lineage::Anchored> values;
  for (const uint64_t storage : storages) {
    values.push_back(
        {lineage.Find(storage), std::make_unique<TestPayload>(), bytes});
    Lineage::Hold(values.back().value.producer);
  }
  std::vector<Lineage::Node*> held;
  for (const Lineage::Anchored& anchored : values) {
    held.push_back(anchored.value.producer);
  }
  lineage.Anchor(std::move(values));
  for (Lineage::Node* const node : held) lineage.Release(node);
}

std::vector<uint64_t> ToBeRead(const Lineage& lineage) {
  std::vector<uint64_t> storages;
  for (const Lineage::Value& value : lineage.ToBeRead()) {
    storages.push_back(value.storage);
  }
  return storages;
}

TEST(LineageTest, AnAnchorCutsTheChain) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1)}));
  lineage.Add(2, MessageOf({Creates(2)}));
  lineage.Add(3, MessageOf({Reads(1, 1), Updates(2, 1)}));
  lineage.Executed(3);
  EXPECT_THAT(ToBeRead(lineage), ElementsAre(2));
  Anchor(lineage, {2}, 100);
  EXPECT_THAT(Kept(lineage), ElementsAre(1, 3));
  EXPECT_TRUE(lineage.nodes().back().anchor);
  EXPECT_EQ(lineage.anchored_bytes(), Lineage::kAnchorBytes + 100);
  EXPECT_THAT(ToBeRead(lineage), ElementsAre());
  lineage.Add(4, MessageOf({Updates(2, 2)}));
  lineage.Executed(4);
  EXPECT_THAT(Kept(lineage), ElementsAre(1, 3, 4));
  EXPECT_THAT(ToBeRead(lineage), ElementsAre(2));
  Anchor(lineage, {2}, 70);
  EXPECT_THAT(Kept(lineage), ElementsAre(1, 4));
  EXPECT_EQ(lineage.anchored_bytes(), Lineage::kAnchorBytes + 70);
  lineage.Free({1, 2});
  EXPECT_EQ(lineage.bytes(), 0);
  EXPECT_EQ(lineage.anchored_bytes(), 0);
}

TEST(LineageTest, AnAnchorOfAnOlderVersionServesItsReaders) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1)}));
  lineage.Add(2, MessageOf({Updates(1, 1), Creates(2)}));
  Lineage::Value read = lineage.Find(1);
  Lineage::Hold(read.producer);
  lineage.Add(3, MessageOf({Updates(1, 2)}));
  lineage.Add(4, MessageOf({Reads(1, 3), Creates(3)}));
  lineage.Executed(4);
  std::vector<Lineage::Anchored> values;
  values.push_back({read, std::make_unique<TestPayload>(), 0});
  lineage.Anchor(std::move(values));
  lineage.Release(read.producer);
  // The message that also produced storage 2 stays, and what it needs.
  EXPECT_THAT(Kept(lineage), ElementsAre(1, 2, 2, 3, 4));
  lineage.Free({2});
  EXPECT_THAT(Kept(lineage), ElementsAre(2, 3, 4));
  EXPECT_TRUE(lineage.nodes().front().anchor);
  lineage.Free({1, 3});
  EXPECT_THAT(Kept(lineage), ElementsAre());
}

TEST(LineageTest, AnchorsOfOneMessageMayComeOneAfterTheOther) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1), Creates(2)}));
  lineage.Add(2, MessageOf({Updates(1, 1), Updates(2, 1)}));
  Lineage::Value read = lineage.Find(2);
  Lineage::Hold(read.producer);
  Anchor(lineage, {1});
  // It reads one anchor, and a value that is still on its way.
  lineage.Add(3, MessageOf({Updates(1, 2), Updates(2, 2)}));
  lineage.Executed(3);
  std::vector<Lineage::Anchored> values;
  values.push_back({read, std::make_unique<TestPayload>(), 0});
  lineage.Anchor(std::move(values));
  lineage.Release(read.producer);
  EXPECT_THAT(Kept(lineage), ElementsAre(2, 2, 3));
}

TEST(LineageTest, AnAnchorThatNothingNeedsIsForgotten) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1)}));
  lineage.Add(2, MessageOf({Updates(1, 1)}));
  Lineage::Value read = lineage.Find(1);
  Lineage::Hold(read.producer);
  lineage.Free({1});
  lineage.Executed(2);
  EXPECT_EQ(lineage.Find(1).producer, nullptr);
  std::vector<Lineage::Anchored> values;
  values.push_back({read, std::make_unique<TestPayload>(), 5});
  lineage.Anchor(std::move(values));
  lineage.Release(read.producer);
  EXPECT_THAT(Kept(lineage), ElementsAre());
  EXPECT_EQ(lineage.anchored_bytes(), 0);
}

TEST(LineageTest, AnAnchorHealsAnIncompleteValue) {
  Lineage lineage(kAmple);
  Lineage::Message lost = MessageOf({Creates(1)});
  lost.payload = nullptr;
  lineage.Add(1, std::move(lost));
  lineage.Add(2, MessageOf({Reads(1, 1), Creates(2)}));
  lineage.Executed(2);
  EXPECT_THAT(ToBeRead(lineage), ElementsAre(1, 2));
  Anchor(lineage, {1, 2});
  EXPECT_TRUE(lineage.complete());
  lineage.Add(3, MessageOf({Reads(1, 1), Updates(2, 1)}));
  EXPECT_TRUE(lineage.complete());
}

TEST(LineageTest, AnUploadWithoutItsBytesIsRead) {
  Lineage lineage(kAmple);
  Lineage::Message upload = MessageOf({Creates(1)});
  upload.payload = std::make_unique<UploadPayload>(0);
  lineage.Add(1, std::move(upload));
  lineage.Add(2, MessageOf({Creates(2)}));
  lineage.Executed(2);
  EXPECT_EQ(lineage.hash_only_nodes(), 1);
  EXPECT_THAT(ToBeRead(lineage), ElementsAre(1));
  Anchor(lineage, {1});
  EXPECT_EQ(lineage.hash_only_nodes(), 0);
  EXPECT_THAT(ToBeRead(lineage), ElementsAre());
}

TEST(LineageTest, AValueWithAnErrorIsNotRead) {
  Lineage lineage(kAmple);
  lineage.Add(1, MessageOf({Creates(1)}));
  lineage.Add(2, MessageOf({Updates(1, 1)}));
  lineage.Taint(&lineage.nodes().back(), absl::DataLossError("differs"));
  EXPECT_THAT(ToBeRead(lineage), ElementsAre());
}

TEST(LineageTest, AGeneratorRemainsOneAndSizesAreThoseSeenLast) {
  Lineage lineage(kAmple);
  Lineage::Use seeded = Creates(1);
  seeded.generator = true;
  seeded.size_bytes = 0;
  lineage.Add(1, MessageOf({seeded}));
  Lineage::Use draws = Updates(1, 1);
  draws.size_bytes = 0;
  lineage.Add(2, MessageOf({draws, Creates(2)}));
  EXPECT_TRUE(lineage.Find(1).generator);
  EXPECT_EQ(lineage.Find(1).size_bytes, 0);
  EXPECT_EQ(lineage.Find(1).version, 2);
  EXPECT_FALSE(lineage.Find(2).generator);
  Lineage::Use resized = Updates(2, 1);
  resized.size_bytes = 24;
  lineage.Add(3, MessageOf({resized}));
  EXPECT_EQ(lineage.Find(2).size_bytes, 24);
}

TEST(LineageTest, TheBudgetSparesAnchors) {
  constexpr uint64_t kBudget = 100'000;
  Lineage lineage(kBudget);
  lineage.Add(1, MessageOf({Creates(1)}));
  lineage.Add(2, MessageOf({Updates(1, 1)}));
  lineage.Executed(2);
  Anchor(lineage, {1}, kBudget * 2);
  lineage.Add(3, MessageOf({Creates(2)}, false, 100));
  for (uint64_t i = 4; i < 2000; ++i) {
    lineage.Add(i, MessageOf({Updates(2, i - 3)}, false, 100));
    lineage.Executed(i);
    ASSERT_LE(lineage.bytes(), kBudget);
  }
  EXPECT_EQ(lineage.incomplete_storages(), 1);
  EXPECT_EQ(lineage.Find(1).producer->incomplete, false);
  EXPECT_EQ(lineage.anchored_bytes(), Lineage::kAnchorBytes + kBudget * 2);
}

}  // namespace
}  // namespace djinn
