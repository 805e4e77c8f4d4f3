// Looks at an encoded message before protobuf makes objects of it. An empty
// submessage takes two bytes on the wire and a hundred and more as an object,
// so that a message within the transport's limit may take all the memory there
// is; and what protobuf does not know it keeps, and sends on with what is
// copied.
#ifndef COMMON_TRANSPORT_MESSAGE_SCAN_H_
#define COMMON_TRANSPORT_MESSAGE_SCAN_H_

#include <cstddef>
#include <cstdint>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"

namespace djinn {

struct MessageScan {
  // About what the parsed message takes.
  uint64_t parsed_bytes = 0;
  bool has_unknown_fields = false;
};

// Shorter ones cannot take much, and are not worth the look.
inline constexpr size_t kMinScannedBytes = 4 << 10;
// The most that a peer's message may take: many times what the largest
// graphs of programs do.
inline constexpr uint64_t kMaxParsedBytes = uint64_t{192} << 20;

// Of the message that is all of `input`, of which no more is read once
// `limit_bytes` are exceeded. What is no message at all is left to the parser
// to refuse.
MessageScan ScanMessage(const google::protobuf::Descriptor& type,
                        uint64_t limit_bytes,
                        google::protobuf::io::CodedInputStream* input);

}  // namespace djinn

#endif  // COMMON_TRANSPORT_MESSAGE_SCAN_H_
