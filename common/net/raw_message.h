// Converts protobuf messages to and from gRPC's raw byte buffers. Servers read
// raw streams and parse the messages themselves, because gRPC's typed streams
// treat a message that does not parse as the end of the stream.
#ifndef COMMON_NET_RAW_MESSAGE_H_
#define COMMON_NET_RAW_MESSAGE_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace djinn {

// Parses and empties `buffer`. Returns InvalidArgument (PROTOCOL_VIOLATION),
// which names the message's type and size, when the bytes are not such a
// message, or would take more than kMaxParsedBytes
// (common/transport/message_scan.h). `message` is then of no use. Unknown
// fields of a long message are not kept.
absl::Status ParseRawMessage(grpc::ByteBuffer* buffer,
                             google::protobuf::Message* message);

grpc::ByteBuffer ToRawMessage(const google::protobuf::Message& message);

// Encodes the first message with the other ones in its repeated field
// `following_field`. The field is empty in all of them, and its number is below
// 16. There is at least one message.
grpc::Slice EncodeTogether(
    absl::Span<const google::protobuf::MessageLite* const> messages,
    int following_field);

}  // namespace djinn

#endif  // COMMON_NET_RAW_MESSAGE_H_
