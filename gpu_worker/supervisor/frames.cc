#include "gpu_worker/supervisor/frames.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

constexpr size_t kHeadBytes = 4;
constexpr size_t kReadBytes = 64 << 10;

size_t SizeIn(const char* head) {
  size_t size = 0;
  for (size_t i = kHeadBytes; i-- > 0;) {
    size = size << 8 | static_cast<unsigned char>(head[i]);
  }
  return size;
}

absl::Status Failed(const char* what) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return absl::UnavailableError("not now");
  }
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

std::string EncodeFrame(const google::protobuf::MessageLite& message) {
  std::string frame(kHeadBytes, '\0');
  message.AppendToString(&frame);
  const size_t size = frame.size() - kHeadBytes;
  for (size_t i = 0; i < kHeadBytes; ++i) {
    frame[i] = static_cast<char>(size >> (8 * i) & 0xff);
  }
  return frame;
}

absl::Status FrameReader::Fill(int socket) {
  if (taken_ > 0) {
    bytes_.erase(0, taken_);
    taken_ = 0;
  }
  const size_t before = bytes_.size();
  bytes_.resize(before + kReadBytes);
  iovec part = {bytes_.data() + before, kReadBytes};
  msghdr data = {};
  data.msg_iov = &part;
  data.msg_iovlen = 1;
  const ssize_t got = recvmsg(socket, &data, 0);
  const int error = errno;
  bytes_.resize(before + static_cast<size_t>(got > 0 ? got : 0));
  // There is no room for descriptors, so the system closes them.
  if ((data.msg_flags & MSG_CTRUNC) != 0) {
    return absl::InvalidArgumentError("the peer sends descriptors");
  }
  if (got > 0) return absl::OkStatus();
  if (got == 0) return absl::OutOfRangeError("the peer closed the socket");
  errno = error;
  return Failed("recvmsg");
}

absl::StatusOr<absl::string_view> FrameReader::TakeBytes() {
  const size_t left = bytes_.size() - taken_;
  if (left < kHeadBytes) return absl::NotFoundError("no message");
  const char* const head = bytes_.data() + taken_;
  const size_t size = SizeIn(head);
  if (size > max_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", size, " bytes, at most ", max_bytes_, " are allowed"));
  }
  if (left - kHeadBytes < size) return absl::NotFoundError("no message");
  taken_ += kHeadBytes + size;
  return absl::string_view(head + kHeadBytes, size);
}

absl::Status FrameReader::Take(google::protobuf::MessageLite* message) {
  DJINN_ASSIGN_OR_RETURN(const absl::string_view bytes, TakeBytes());
  if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the bytes are no message");
  }
  return absl::OkStatus();
}

absl::Status WriteSome(int socket, std::string* bytes) {
  while (!bytes->empty()) {
    const ssize_t sent =
        send(socket, bytes->data(), bytes->size(), MSG_NOSIGNAL);
    if (sent < 0) return Failed("write");
    bytes->erase(0, static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
