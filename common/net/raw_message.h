// Protobuf messages in gRPC's raw byte buffers. Servers read raw streams and
// parse for themselves: for gRPC's typed streams a message that does not parse
// is the peer's last, as if it had said goodbye.
#ifndef COMMON_NET_RAW_MESSAGE_H_
#define COMMON_NET_RAW_MESSAGE_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace djinn {

// Empties `buffer`. InvalidArgument (PROTOCOL_VIOLATION), naming the message's
// type and size, when the bytes are not such a message; `message` is then to be
// thrown away.
absl::Status ParseRawMessage(grpc::ByteBuffer* buffer,
                             google::protobuf::Message* message);

grpc::ByteBuffer ToRawMessage(const google::protobuf::Message& message);

}  // namespace djinn

#endif  // COMMON_NET_RAW_MESSAGE_H_
