#include "common/transport/message_scan.h"

#include "google/protobuf/wire_format_lite.h"

namespace djinn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Approximate size of an object with a few repeated fields, with its entry in a
// list.
constexpr uint64_t kSubmessageBytes = 160;
constexpr uint64_t kTextBytes = 40;
constexpr uint64_t kScalarBytes = 8;
// The limit of protobuf's own parser.
constexpr int kMaxDepth = 100;

class Scanner {
 public:
  Scanner(uint64_t limit_bytes, CodedInputStream* input)
      : limit_bytes_(limit_bytes), input_(*input) {}

  // Returns false when enough is known, or nothing more can be.
  bool Scan(const Descriptor& type, int depth) {
    while (const uint32_t tag = input_.ReadTag()) {
      const FieldDescriptor* const field =
          type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      scan_.has_unknown_fields |= field == nullptr;
      const bool known =
          field == nullptr || WireFormatLite::GetTagWireType(tag) !=
                                  WireFormatLite::WIRETYPE_LENGTH_DELIMITED
              ? SkipScalar(tag)
              : ScanLengthDelimited(*field, depth);
      if (!known || scan_.parsed_bytes > limit_bytes_) return false;
    }
    return true;
  }

  const MessageScan& scan() const { return scan_; }

 private:
  // Skips a scalar, or an unknown field, which protobuf keeps as it came.
  bool SkipScalar(uint32_t tag) {
    const int before = input_.CurrentPosition();
    if (!WireFormatLite::SkipField(&input_, tag)) return false;
    scan_.parsed_bytes +=
        2 * kScalarBytes +
        static_cast<uint64_t>(input_.CurrentPosition() - before);
    return true;
  }

  bool ScanLengthDelimited(const FieldDescriptor& field, int depth) {
    int length;
    if (!input_.ReadVarintSizeAsInt(&length)) return false;
    const auto bytes = static_cast<uint64_t>(length);
    if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
      scan_.parsed_bytes += kSubmessageBytes;
      if (depth == kMaxDepth) return false;
      const CodedInputStream::Limit outer = input_.PushLimit(length);
      if (!Scan(*field.message_type(), depth + 1)) return false;
      input_.PopLimit(outer);
      return true;
    }
    const bool text = field.type() == FieldDescriptor::TYPE_STRING ||
                      field.type() == FieldDescriptor::TYPE_BYTES;
    // The field is a string, or a packed list, whose numbers take at least one
    // byte each.
    scan_.parsed_bytes += text ? kTextBytes + bytes : kScalarBytes * bytes;
    return input_.Skip(length);
  }

  const uint64_t limit_bytes_;
  CodedInputStream& input_;
  MessageScan scan_;
};

}  // namespace

MessageScan ScanMessage(const Descriptor& type, uint64_t limit_bytes,
                        CodedInputStream* input) {
  Scanner scanner(limit_bytes, input);
  (void)scanner.Scan(type, 0);
  return scanner.scan();
}

}  // namespace djinn
