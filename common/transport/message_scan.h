// Inspects an encoded message before protobuf makes objects of it. An empty
// submessage takes two bytes on the wire and more than a hundred as an object,
// so a message within the transport's limit could exhaust memory. Protobuf also
// keeps unknown fields and sends them on with copies.
#ifndef COMMON_TRANSPORT_MESSAGE_SCAN_H_
#define COMMON_TRANSPORT_MESSAGE_SCAN_H_

#include <cstddef>
#include <cstdint>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"

namespace djinn {

struct MessageScan {
  // Approximate size of the parsed message.
  uint64_t parsed_bytes = 0;
  bool has_unknown_fields = false;
};

// Shorter messages cannot take much memory and are not scanned.
inline constexpr size_t kMinScannedBytes = 4 << 10;
// The most memory that a peer's message may take. It is many times what the
// largest graphs of real programs take.
inline constexpr uint64_t kMaxParsedBytes = uint64_t{192} << 20;

// Scans `input`, which is one whole message, and stops once `limit_bytes` are
// exceeded. The parser refuses bytes that are no message.
MessageScan ScanMessage(const google::protobuf::Descriptor& type,
                        uint64_t limit_bytes,
                        google::protobuf::io::CodedInputStream* input);

}  // namespace djinn

#endif  // COMMON_TRANSPORT_MESSAGE_SCAN_H_
