#include "common/transport/message_scan.h"

#include <string>

#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

MessageScan ScanBytes(const std::string& bytes,
                      uint64_t limit = kMaxParsedBytes) {
  google::protobuf::io::CodedInputStream input(
      reinterpret_cast<const uint8_t*>(bytes.data()),
      static_cast<int>(bytes.size()));
  return ScanMessage(*v1::ControlRequest::descriptor(), limit, &input);
}

v1::ControlRequest WithNodes(int count) {
  v1::ControlRequest request;
  for (int i = 0; i < count; ++i) {
    request.mutable_ordered()
        ->mutable_define_graph()
        ->mutable_graph()
        ->add_nodes();
  }
  return request;
}

TEST(MessageScanTest, ToldIsAboutWhatTheParsedMessageTakes) {
  v1::ControlRequest request = WithNodes(1000);
  for (v1::Node& node : *request.mutable_ordered()
                             ->mutable_define_graph()
                             ->mutable_graph()
                             ->mutable_nodes()) {
    v1::TensorView* const view = node.add_arguments()->mutable_tensor();
    for (int i = 0; i < 4; ++i) view->add_sizes(i);
    node.add_arguments()->set_text(std::string(100, 'x'));
  }
  v1::ControlRequest parsed;
  const std::string bytes = request.SerializeAsString();
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  const MessageScan scan = ScanBytes(bytes);
  EXPECT_FALSE(scan.has_unknown_fields);
  EXPECT_GT(scan.parsed_bytes, parsed.SpaceUsedLong() / 2);
  EXPECT_LT(scan.parsed_bytes, parsed.SpaceUsedLong() * 4);
}

TEST(MessageScanTest, EmptySubmessagesAreSeenForWhatTheyTake) {
  const v1::ControlRequest request = WithNodes(100'000);
  const std::string bytes = request.SerializeAsString();
  EXPECT_LT(bytes.size(), 300'000u);
  const MessageScan scan = ScanBytes(bytes);
  EXPECT_GT(scan.parsed_bytes, request.SpaceUsedLong() / 2);
  // The scan stops at the limit.
  EXPECT_LT(ScanBytes(bytes, 1000).parsed_bytes, 2000u);
}

TEST(MessageScanTest, ListsOfNumbersTakeMoreThanTheirBytes) {
  v1::ControlRequest request;
  for (int i = 0; i < 10'000; ++i) {
    request.mutable_ordered()->mutable_free()->add_storages(1);
  }
  EXPECT_GT(ScanBytes(request.SerializeAsString()).parsed_bytes, 80'000u);
}

TEST(MessageScanTest, UnknownFieldsAreSeenWhereverTheyAre) {
  v1::ControlRequest request;
  request.mutable_ordered()->mutable_run();
  EXPECT_FALSE(ScanBytes(request.SerializeAsString()).has_unknown_fields);
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(1000, 1);
  EXPECT_TRUE(ScanBytes(request.SerializeAsString()).has_unknown_fields);
  request.DiscardUnknownFields();
  v1::Run* const run = request.mutable_ordered()->mutable_run();
  run->GetReflection()->MutableUnknownFields(run)->AddLengthDelimited(
      1000, std::string(5000, 'x'));
  const MessageScan scan = ScanBytes(request.SerializeAsString());
  EXPECT_TRUE(scan.has_unknown_fields);
  EXPECT_GT(scan.parsed_bytes, 5000u);
}

TEST(MessageScanTest, MalformedMessageIsLeftToTheParser) {
  std::string bytes = WithNodes(10).SerializeAsString();
  bytes.pop_back();
  ScanBytes(bytes);
  ScanBytes(std::string(5000, '\xff'));
  // Deeper than any parser accepts.
  std::string nested;
  for (int i = 0; i < 1000; ++i) {
    const size_t size = nested.size();
    std::string length;
    for (size_t rest = size;; rest >>= 7) {
      length.push_back(
          static_cast<char>((rest & 127) | (rest > 127 ? 128 : 0)));
      if (rest <= 127) break;
    }
    // The tag of ControlRequest.following.
    nested = "\x32" + length + nested;
  }
  ScanBytes(nested);
}

}  // namespace
}  // namespace djinn
