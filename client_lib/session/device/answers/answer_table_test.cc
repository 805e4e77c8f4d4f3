#include "client_lib/session/device/answers/answer_table.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "client_lib/session/stream/worker_greeting.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// Returns a message with this number.
EncodedMessage Message(uint64_t sequence) {
  EncodedMessage message;
  message.request = std::make_shared<v1::ControlRequest>();
  message.request->mutable_ordered()->set_sequence(sequence);
  return message;
}

std::shared_ptr<ReadWait> RegisterRead(AnswerTable* table, uint64_t sequence,
                                       uint64_t bytes,
                                       uint64_t transfer_id = 0) {
  auto wait = std::make_shared<ReadWait>(nullptr, bytes);
  EncodedMessage message = Message(sequence);
  message.request->mutable_ordered()->mutable_read()->set_transfer_id(
      transfer_id);
  message.registration = wait;
  table->Register(&message);
  return wait;
}

v1::ReadReply Value(uint64_t sequence, std::string value) {
  v1::ReadReply reply;
  reply.set_sequence(sequence);
  reply.set_value(std::move(value));
  return reply;
}

TEST(AnswerTableTest, AValueIsTakenOnce) {
  AnswerTable table;
  const auto wait = RegisterRead(&table, 7, 3);
  EXPECT_FALSE(table.idle());
  bool held = false;
  v1::ReadReply reply = Value(7, "abc");
  ASSERT_TRUE(table.TakeRead(1, &reply, &held).ok());
  EXPECT_TRUE(wait->done);
  EXPECT_EQ(wait->value, "abc");
  EXPECT_TRUE(table.idle());
  reply = Value(7, "abc");
  EXPECT_EQ(ErrorReason(table.TakeRead(2, &reply, &held)), kProtocolViolation);
}

TEST(AnswerTableTest, AValueOfAnotherSizeBreaksTheProtocol) {
  AnswerTable table;
  RegisterRead(&table, 7, 3);
  bool held = false;
  v1::ReadReply reply = Value(7, "abcd");
  EXPECT_EQ(ErrorReason(table.TakeRead(1, &reply, &held)), kProtocolViolation);
}

TEST(AnswerTableTest, AnAnnouncedValueIsHeldUntilItsBytesAreHere) {
  AnswerTable table;
  const auto wait = RegisterRead(&table, 7, 3, /*transfer_id=*/9);
  v1::ReadReply reply;
  reply.set_sequence(7);
  reply.set_bulk_bytes(3);
  bool held = false;
  ASSERT_TRUE(table.TakeRead(1, &reply, &held).ok());
  EXPECT_TRUE(held);
  EXPECT_FALSE(wait->done);
  EXPECT_EQ(table.reads().FindBulk(9), wait);
}

TEST(AnswerTableTest, AdmittedGraphWithAnotherFingerprintIsRefused) {
  AnswerTable table;
  EncodedMessage message = Message(1);
  message.registration = DefinedGraph{4, "ours"};
  table.Register(&message);
  v1::Admitted admitted;
  admitted.set_graph_id(4);
  admitted.set_fingerprint("theirs");
  EXPECT_EQ(ErrorReason(table.TakeAdmitted(admitted, v1::Lease())),
            "FINGERPRINT_MISMATCH");
  // The definition was answered already.
  EXPECT_EQ(ErrorReason(table.TakeAdmitted(admitted, v1::Lease())),
            kProtocolViolation);
}

TEST(AnswerTableTest, AModelWithoutStoragesNeedsNoAnswer) {
  AnswerTable table;
  const auto wait = std::make_shared<ModelWait>();
  EncodedMessage message = Message(1);
  message.request->mutable_ordered()->mutable_register_model();
  message.registration = wait;
  table.Register(&message);
  EXPECT_TRUE(wait->done);
  v1::ModelRegistered registered;
  registered.set_sequence(1);
  EXPECT_EQ(ErrorReason(table.TakeModel(registered)), kProtocolViolation);
}

TEST(AnswerTableTest, UseOnWorkersThatItLeftIsAdded) {
  AnswerTable table;
  v1::MeteredUse before;
  before.set_runs(2);
  table.BeginAnew(before);
  const auto wait = std::make_shared<MeterWait>();
  EncodedMessage message = Message(5);
  message.registration = wait;
  table.Register(&message);
  v1::Metered metered;
  metered.set_sequence(5);
  metered.mutable_use()->set_runs(3);
  ASSERT_TRUE(table.TakeMetered(metered).ok());
  EXPECT_EQ(wait->use.runs(), 5u);
}

}  // namespace
}  // namespace djinn
