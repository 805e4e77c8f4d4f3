// Sends and receives messages about contents, one per packet of a socket of
// type SOCK_SEQPACKET.
#ifndef GPU_WORKER_SUPERVISOR_CONTENTS_PACKETS_H_
#define GPU_WORKER_SUPERVISOR_CONTENTS_PACKETS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "common/transport/shared_memory/shared_region.h"
#include "google/protobuf/message_lite.h"

namespace djinn::worker {

// Bytes of a content in one packet, and of the largest packet.
inline constexpr size_t kPieceBytes = size_t{128} << 10;
inline constexpr size_t kMaxPacketBytes = size_t{160} << 10;

// Sends the message, and the descriptor if it is valid. Returns Unavailable
// when the socket has no room, at once or after its time-out; OutOfRange when
// the peer has ended; and Internal when the system refuses, which may concern
// only the descriptor.
absl::Status SendPacket(int socket,
                        const google::protobuf::MessageLite& message,
                        const Descriptor& descriptor = Descriptor());

// Waits for the next packet if the socket blocks. Puts the first descriptor of
// the packet into `descriptor`, and closes further ones. If `descriptor` is
// null, closes all and returns InvalidArgument. `room` holds the packet's
// bytes; pass the same string again to save its allocation. Returns Unavailable
// when there is no packet yet, OutOfRange at the end, InvalidArgument for a
// packet that is too large or no such message, and Internal when the socket
// fails.
absl::Status ReceivePacket(int socket, google::protobuf::MessageLite* message,
                           Descriptor* descriptor, std::string* room);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_CONTENTS_PACKETS_H_
