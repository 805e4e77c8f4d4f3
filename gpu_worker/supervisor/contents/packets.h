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
// the peer is gone; and Internal when the system refuses, as it may for the
// descriptor alone.
absl::Status SendPacket(int socket,
                        const google::protobuf::MessageLite& message,
                        const Descriptor& descriptor = Descriptor());

// Waits for the next packet if the socket blocks. Puts a descriptor that comes
// with it into `descriptor`, and closes further ones. If that is null, closes
// all and returns InvalidArgument. `room` holds the packet's bytes; passing the
// same one again saves making it. Returns Unavailable when there is none yet,
// OutOfRange at the end, InvalidArgument for a packet that is too large or no
// such message, and Internal when the socket fails.
absl::Status ReceivePacket(int socket, google::protobuf::MessageLite* message,
                           Descriptor* descriptor, std::string* room);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_CONTENTS_PACKETS_H_
