#include "common/net/raw_message.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/transport/message_scan.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace djinn {

absl::Status ParseRawMessage(grpc::ByteBuffer* buffer,
                             google::protobuf::Message* message) {
  const size_t bytes = buffer->Length();
  MessageScan scan;
  if (bytes >= kMinScannedBytes) {
    grpc::ProtoBufferReader reader(buffer);
    google::protobuf::io::CodedInputStream input(&reader);
    scan = ScanMessage(*message->GetDescriptor(), kMaxParsedBytes, &input);
  }
  const bool fits = scan.parsed_bytes <= kMaxParsedBytes;
  bool parsed = false;
  if (fits) {
    grpc::ProtoBufferReader reader(buffer);
    parsed = reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
  }
  buffer->Clear();
  if (parsed) {
    if (scan.has_unknown_fields) message->DiscardUnknownFields();
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
      absl::StrCat("a message of ", bytes, " bytes ",
                   fits ? "is not a " : "would take too much memory as a ",
                   std::string(message->GetDescriptor()->full_name())));
}

grpc::ByteBuffer ToRawMessage(const google::protobuf::Message& message) {
  grpc::ByteBuffer buffer;
  bool own_buffer;
  // Fails only for a message of more than two gigabytes.
  (void)grpc::SerializationTraits<google::protobuf::Message>::Serialize(
      message, &buffer, &own_buffer);
  return buffer;
}

grpc::Slice EncodeTogether(
    absl::Span<const google::protobuf::MessageLite* const> messages,
    int following_field) {
  using google::protobuf::internal::WireFormatLite;
  using google::protobuf::io::CodedOutputStream;
  size_t size = messages.front()->ByteSizeLong();
  for (const auto* message : messages.subspan(1)) {
    const size_t bytes = message->ByteSizeLong();
    size += 1 + CodedOutputStream::VarintSize32(static_cast<uint32_t>(bytes)) +
            bytes;
  }
  const grpc::Slice slice(size);
  auto* end = messages.front()->SerializeWithCachedSizesToArray(
      const_cast<uint8_t*>(slice.begin()));
  for (const auto* message : messages.subspan(1)) {
    end = WireFormatLite::WriteTagToArray(
        following_field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED, end);
    end = CodedOutputStream::WriteVarint32ToArray(
        static_cast<uint32_t>(message->GetCachedSize()), end);
    end = message->SerializeWithCachedSizesToArray(end);
  }
  return slice;
}

}  // namespace djinn
