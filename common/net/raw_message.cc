#include "common/net/raw_message.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace djinn {

absl::Status ParseRawMessage(grpc::ByteBuffer* buffer,
                             google::protobuf::Message* message) {
  const size_t bytes = buffer->Length();
  grpc::ProtoBufferReader reader(buffer);
  const bool parsed =
      reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
  buffer->Clear();
  if (parsed) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, "PROTOCOL_VIOLATION",
      absl::StrCat("a message of ", bytes, " bytes is not a ",
                   std::string(message->GetDescriptor()->full_name())));
}

grpc::ByteBuffer ToRawMessage(const google::protobuf::Message& message) {
  grpc::ByteBuffer buffer;
  bool own_buffer;
  // Fails only for a message beyond two gigabytes.
  (void)grpc::SerializationTraits<google::protobuf::Message>::Serialize(
      message, &buffer, &own_buffer);
  return buffer;
}

}  // namespace djinn
