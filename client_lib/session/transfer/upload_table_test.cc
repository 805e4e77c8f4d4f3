#include "client_lib/session/transfer/upload_table.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace djinn {
namespace {

using State = UploadWait::State;

class UploadTableTest : public testing::Test {
 protected:
  std::shared_ptr<UploadWait> Add(uint64_t id, bool uploaded_before = false) {
    auto wait = std::make_shared<UploadWait>();
    wait->transfer_id = id;
    wait->uploaded_before = uploaded_before;
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
  static v1::TransferDecision Held(uint64_t id) {
    v1::TransferDecision decision = About(id);
    decision.set_already_held(true);
    return decision;
  }
  static v1::TransferDecision AskProof(uint64_t id) {
    v1::TransferDecision decision = About(id);
    decision.mutable_prove()->set_key(std::string(16, 'k'));
    return decision;
  }

  UploadTable table_;
};

TEST_F(UploadTableTest, TheBytesAreSentUntilTheInstallIsExecuted) {
  const auto wait = Add(1);
  EXPECT_EQ(wait->state, State::kAsked);
  EXPECT_TRUE(table_.Decide(Send(1)).ok());
  EXPECT_EQ(wait->state, State::kSend);
  table_.Complete(1);
  EXPECT_EQ(wait->state, State::kOver);
  EXPECT_TRUE(wait->refusal.ok());
}

TEST_F(UploadTableTest, AHeldContentIsOverAtOnce) {
  const auto wait = Add(1);
  EXPECT_TRUE(table_.Decide(Held(1)).ok());
  EXPECT_EQ(wait->state, State::kOver);
}

TEST_F(UploadTableTest, OnlyContentsNotUploadedBeforeSuggestThatOthersAreHeld) {
  EXPECT_FALSE(table_.finds_new_contents());
  Add(1, /*uploaded_before=*/true);
  EXPECT_TRUE(table_.Decide(Held(1)).ok());
  EXPECT_FALSE(table_.finds_new_contents());
  Add(2);
  EXPECT_TRUE(table_.Decide(Held(2)).ok());
  EXPECT_TRUE(table_.finds_new_contents());
  Add(3, /*uploaded_before=*/true);
  EXPECT_TRUE(table_.Decide(Send(3)).ok());
  EXPECT_TRUE(table_.finds_new_contents());
  Add(4);
  EXPECT_TRUE(table_.Decide(Send(4)).ok());
  EXPECT_FALSE(table_.finds_new_contents());
}

TEST_F(UploadTableTest, AnErasedUploadIsIgnored) {
  Add(1);
  table_.Erase(1);
  EXPECT_TRUE(table_.Decide(Send(1)).ok());
  table_.Complete(1);
}

TEST_F(UploadTableTest, AResumedStreamMayReportTheEndBeforeTheDecision) {
  const auto refused = Add(1), sent = Add(2);
  table_.Complete(1);
  table_.Complete(2);
  EXPECT_EQ(refused->state, State::kAsked);
  v1::TransferDecision refusal = About(1);
  refusal.mutable_refused()->set_code(8);
  EXPECT_TRUE(table_.Decide(refusal).ok());
  EXPECT_EQ(refused->state, State::kOver);
  EXPECT_FALSE(refused->refusal.ok());
  EXPECT_TRUE(table_.Decide(Send(2)).ok());
  EXPECT_EQ(sent->state, State::kOver);
}

TEST_F(UploadTableTest, AProofIsSentUnlessTheWorkerHasDecided) {
  const auto wait = Add(1);
  EXPECT_TRUE(table_.Decide(AskProof(1)).ok());
  EXPECT_EQ(wait->state, State::kProve);
  EXPECT_EQ(wait->key, std::string(16, 'k'));
  EXPECT_EQ(table_.Decide(AskProof(1)).message(),
            "a proof was asked for where it does not belong");
  table_.QueueProof(wait.get(), wait->key, "mac");
  EXPECT_EQ(wait->state, State::kAsked);
  EXPECT_EQ(table_.Decide(AskProof(1)).message(),
            "a proof was asked for where it does not belong");
  v1::TransferProof message;
  ASSERT_TRUE(table_.TakeProof(&message));
  EXPECT_EQ(message.transfer_id(), 1);
  EXPECT_EQ(message.mac(), "mac");
  // The proof is to be sent on another stream; meanwhile the worker decides.
  table_.Resume({});
  ASSERT_TRUE(table_.has_proofs());
  EXPECT_TRUE(table_.Decide(Send(1)).ok());
  EXPECT_FALSE(table_.TakeProof(&message));
  EXPECT_FALSE(table_.has_proofs());
}

TEST_F(UploadTableTest, ARefusalCarriesItsReason) {
  const auto wait = Add(1);
  v1::TransferDecision refused = About(1);
  refused.mutable_refused()->set_code(8);
  refused.mutable_refused()->set_message("no room");
  EXPECT_TRUE(table_.Decide(refused).ok());
  EXPECT_EQ(wait->state, State::kOver);
  EXPECT_EQ(wait->refusal.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(UploadTableTest, AnInvalidDecisionIsABreach) {
  const auto wait = Add(1);
  v1::TransferDecision short_key = About(1);
  short_key.mutable_prove()->set_key("short");
  v1::TransferDecision no_error = About(1);
  no_error.mutable_refused()->set_message("fine");
  for (const auto& decision : {About(1), short_key, no_error}) {
    EXPECT_EQ(table_.Decide(decision).message(),
              "a transfer was answered with no decision");
  }
  EXPECT_EQ(wait->state, State::kAsked);
}

TEST_F(UploadTableTest, AResumedStreamContinuesWhereTheWorkerIs) {
  const auto proved = Add(1);
  EXPECT_TRUE(table_.Decide(AskProof(1)).ok());
  table_.QueueProof(proved.get(), proved->key, "mac");
  const auto under_way = Add(2), elsewhere = Add(3);
  EXPECT_TRUE(table_.Decide(Send(2)).ok());
  EXPECT_TRUE(table_.Decide(Send(3)).ok());
  v1::WorkerHello hello;
  hello.mutable_transfer()->set_transfer_id(2);
  hello.mutable_transfer()->set_received_bytes(4096);
  table_.Resume(hello);
  EXPECT_EQ(under_way->resume_at, 4096);
  EXPECT_EQ(elsewhere->resume_at, UINT64_MAX);
  v1::TransferProof message;
  EXPECT_TRUE(table_.TakeProof(&message));
  EXPECT_FALSE(table_.has_proofs());  // once, although it was queued before
}

TEST_F(UploadTableTest, AnExecutedUploadIsOverWhenItsWorkerIsLost) {
  const auto executed = Add(1), unfinished = Add(2);
  // On a resumed stream, the decision comes later.
  table_.Complete(1);
  EXPECT_EQ(executed->state, State::kAsked);
  table_.ForgetWorker();
  EXPECT_EQ(executed->state, State::kOver);
  EXPECT_TRUE(executed->refusal.ok());
  EXPECT_EQ(unfinished->state, State::kAsked);
}

TEST_F(UploadTableTest, AProofForALostWorkerIsNotSent) {
  const auto queued = Add(1), late = Add(2);
  EXPECT_TRUE(table_.Decide(AskProof(1)).ok());
  EXPECT_TRUE(table_.Decide(AskProof(2)).ok());
  const std::string key = late->key;
  table_.QueueProof(queued.get(), queued->key, "mac");
  table_.ForgetWorker();
  for (const auto& wait : {queued, late}) {
    wait->AskAgain();
    table_.Add(wait);
  }
  // The thread computed the proof while the worker was lost.
  table_.QueueProof(late.get(), key, "mac");
  EXPECT_FALSE(table_.has_proofs());
  EXPECT_TRUE(table_.Decide(AskProof(1)).ok());
  EXPECT_TRUE(table_.Decide(AskProof(2)).ok());
}

}  // namespace
}  // namespace djinn
