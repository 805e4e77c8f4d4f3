#include "client_lib/session/upload_table.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace djinn {
namespace {

using State = UploadWait::State;

class UploadTableTest : public testing::Test {
 protected:
  std::shared_ptr<UploadWait> Add(uint64_t id, bool hash_follows = false) {
    auto wait = std::make_shared<UploadWait>();
    wait->transfer_id = id;
    wait->hash_follows = hash_follows;
    table_.Add(wait);
    return wait;
  }
  static v1::TransferDecision About(uint64_t id) {
    v1::TransferDecision decision;
    decision.set_transfer_id(id);
    return decision;
  }
  static v1::TransferDecision Send(uint64_t id) {
    v1::TransferDecision decision = About(id);
    decision.set_send(true);
    return decision;
  }
  static v1::TransferDecision AskHash(uint64_t id) {
    v1::TransferDecision decision = About(id);
    decision.set_hash(true);
    return decision;
  }
  static v1::TransferDecision AskProof(uint64_t id) {
    v1::TransferDecision decision = About(id);
    decision.mutable_prove()->set_key(std::string(16, 'k'));
    return decision;
  }

  UploadTable table_;
};

TEST_F(UploadTableTest, TheWorkerAsksForTheBytes) {
  const auto wait = Add(1);
  EXPECT_TRUE(table_.Decide(Send(1)).ok());
  EXPECT_EQ(wait->state, State::kSend);
  EXPECT_FALSE(table_.last_hash_was_of_use());
  table_.Complete(1);
  EXPECT_TRUE(wait->completed);
}

TEST_F(UploadTableTest, WhatIsHeldMakesTheNextHashWorthItsTime) {
  const auto wait = Add(1);
  v1::TransferDecision held = About(1);
  held.set_already_held(true);
  EXPECT_TRUE(table_.Decide(held).ok());
  EXPECT_EQ(wait->state, State::kHeld);
  EXPECT_TRUE(table_.last_hash_was_of_use());
  Add(2);
  EXPECT_TRUE(table_.Decide(Send(2)).ok());
  EXPECT_FALSE(table_.last_hash_was_of_use());
}

TEST_F(UploadTableTest, NobodyWaitsForIt) {
  Add(1);
  table_.Erase(1);
  EXPECT_TRUE(table_.Decide(Send(1)).ok());
  table_.Complete(1);
}

TEST_F(UploadTableTest, AHashIsAskedForOnceAndSaid) {
  const auto wait = Add(1, /*hash_follows=*/true);
  EXPECT_TRUE(table_.Decide(AskHash(1)).ok());
  EXPECT_EQ(wait->state, State::kHash);
  table_.QueueHash(wait.get(), {.high = 5, .low = 6});
  EXPECT_EQ(wait->state, State::kPending);
  ASSERT_TRUE(table_.has_hashes());
  v1::TransferHash message;
  ASSERT_TRUE(table_.TakeHash(&message));
  EXPECT_EQ(message.transfer_id(), 1);
  EXPECT_EQ(message.hash_high(), 5);
  EXPECT_EQ(message.hash_low(), 6);
  EXPECT_FALSE(table_.TakeHash(&message));
  EXPECT_EQ(table_.Decide(AskHash(1)).message(),
            "a hash was asked for where it does not belong");
}

TEST_F(UploadTableTest, AHashThatWasAnnouncedIsNotAskedFor) {
  Add(1);
  EXPECT_EQ(table_.Decide(AskHash(1)).message(),
            "a hash was asked for where it does not belong");
}

TEST_F(UploadTableTest, AProofIsSaidUnlessItWasAnswered) {
  const auto wait = Add(1);
  EXPECT_TRUE(table_.Decide(AskProof(1)).ok());
  EXPECT_EQ(wait->state, State::kProve);
  EXPECT_EQ(wait->key, std::string(16, 'k'));
  EXPECT_EQ(table_.Decide(AskProof(1)).message(),
            "a proof was asked for where it does not belong");
  table_.QueueProof(wait.get(), "mac");
  EXPECT_EQ(wait->state, State::kProving);
  v1::TransferProof message;
  ASSERT_TRUE(table_.TakeProof(&message));
  EXPECT_EQ(message.transfer_id(), 1);
  EXPECT_EQ(message.mac(), "mac");
  // Said twice, as on another stream; meanwhile the worker has answered.
  table_.Resume({});
  ASSERT_TRUE(table_.has_proofs());
  EXPECT_TRUE(table_.Decide(Send(1)).ok());
  EXPECT_TRUE(table_.last_hash_was_of_use());
  EXPECT_FALSE(table_.TakeProof(&message));
  EXPECT_FALSE(table_.has_proofs());
}

TEST_F(UploadTableTest, RefusalsSayWhy) {
  const auto wait = Add(1);
  v1::TransferDecision refused = About(1);
  refused.mutable_refused()->set_code(8);
  refused.mutable_refused()->set_message("no room");
  EXPECT_TRUE(table_.Decide(refused).ok());
  EXPECT_EQ(wait->state, State::kRefused);
  EXPECT_EQ(wait->refusal.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(UploadTableTest, WhatDecidesNothingIsABreach) {
  const auto wait = Add(1);
  v1::TransferDecision short_key = About(1);
  short_key.mutable_prove()->set_key("short");
  v1::TransferDecision no_error = About(1);
  no_error.mutable_refused()->set_message("fine");
  for (const auto& decision : {About(1), short_key, no_error}) {
    EXPECT_EQ(table_.Decide(decision).message(),
              "a transfer was answered with no decision");
  }
  EXPECT_EQ(wait->state, State::kPending);
}

TEST_F(UploadTableTest, AnotherStreamIsToldAgain) {
  const auto hashed = Add(1, /*hash_follows=*/true);
  table_.QueueHash(hashed.get(), {.high = 5, .low = 6});
  const auto under_way = Add(2), elsewhere = Add(3);
  EXPECT_TRUE(table_.Decide(Send(2)).ok());
  EXPECT_TRUE(table_.Decide(Send(3)).ok());
  v1::WorkerHello hello;
  hello.mutable_transfer()->set_transfer_id(2);
  hello.mutable_transfer()->set_received_bytes(4096);
  table_.Resume(hello);
  EXPECT_EQ(under_way->resume_at, 4096);
  EXPECT_EQ(elsewhere->resume_at, UINT64_MAX);
  v1::TransferHash message;
  EXPECT_TRUE(table_.TakeHash(&message));
  EXPECT_FALSE(table_.has_hashes());  // once, though it was queued before
}

TEST_F(UploadTableTest, AnotherWorkerIsToldOfNothing) {
  const auto wait = Add(1, /*hash_follows=*/true);
  table_.QueueHash(wait.get(), {.high = 5, .low = 6});
  table_.ForgetQueued();
  EXPECT_FALSE(table_.has_hashes());
}

}  // namespace
}  // namespace djinn
