// Cuts the bytes of a stream socket into messages. Each message is preceded by
// its size in 4 bytes, little-endian.
#ifndef GPU_WORKER_SUPERVISOR_FRAMES_H_
#define GPU_WORKER_SUPERVISOR_FRAMES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace djinn::worker {

// Size of the largest message. Orders that list 65,536 leases fit into it.
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

// Returns the message with its size before it.
std::string EncodeFrame(const google::protobuf::MessageLite& message);

// Not thread-safe.
class FrameReader {
 public:
  // Reads once from the socket. Returns OutOfRange at its end, Unavailable when
  // a read would block or was interrupted, InvalidArgument when descriptors
  // come with the bytes, and Internal when it fails.
  absl::Status Fill(int socket);

  // Takes the next message. Returns NotFound when it has not arrived as a
  // whole, and InvalidArgument when it is too large or is no such message.
  absl::Status Take(google::protobuf::MessageLite* message);
  // Like Take(), but returns the message's bytes, which are valid until the
  // next Fill().
  absl::StatusOr<absl::string_view> TakeBytes();

  // Sets the size of the largest message.
  void set_max_bytes(size_t bytes) { max_bytes_ = bytes; }

 private:
  size_t max_bytes_ = kMaxFrameBytes;
  std::string bytes_;
  // Bytes at the front that were taken.
  size_t taken_ = 0;
};

// Writes bytes from the front, and removes those that it wrote. Returns
// Unavailable if the rest would block, and Internal if the socket fails.
absl::Status WriteSome(int socket, std::string* bytes);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_FRAMES_H_
