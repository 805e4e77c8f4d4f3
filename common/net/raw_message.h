// Protobuf messages in gRPC's raw byte buffers. Servers read raw streams and
// parse for themselves: for gRPC's typed streams a message that does not parse
// is the peer's last, as if it had said goodbye.
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

// Empties `buffer`. InvalidArgument (PROTOCOL_VIOLATION), naming the message's
// type and size, when the bytes are not such a message, or one that would take
// more than kMaxParsedBytes (common/transport/message_scan.h); `message` is
// then to be thrown away. What protobuf does not know of a long message is not
// kept.
absl::Status ParseRawMessage(grpc::ByteBuffer* buffer,
                             google::protobuf::Message* message);

grpc::ByteBuffer ToRawMessage(const google::protobuf::Message& message);

// The first with the others in its repeated field `following_field`, which is
// empty in all of them, and below 16. At least one.
grpc::Slice EncodeTogether(
    absl::Span<const google::protobuf::MessageLite* const> messages,
    int following_field);

}  // namespace djinn

#endif  // COMMON_NET_RAW_MESSAGE_H_
