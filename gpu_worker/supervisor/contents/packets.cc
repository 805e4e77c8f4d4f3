#include "gpu_worker/supervisor/contents/packets.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace djinn::worker {
namespace {

absl::Status Failed(const char* what) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return absl::UnavailableError("not now");
  }
  if (errno == EPIPE || errno == ECONNRESET) {
    return absl::OutOfRangeError("the peer is gone");
  }
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status SendPacket(int socket,
                        const google::protobuf::MessageLite& message,
                        const Descriptor& descriptor) {
  std::string bytes = message.SerializeAsString();
  iovec part = {bytes.data(), bytes.size()};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor.valid()) {
    packet.msg_control = control;
    packet.msg_controllen = sizeof(control);
    cmsghdr* const head = CMSG_FIRSTHDR(&packet);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = descriptor.get();
    std::memcpy(CMSG_DATA(head), &fd, sizeof(fd));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &packet, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? Failed("sendmsg") : absl::OkStatus();
}

absl::Status ReceivePacket(int socket, google::protobuf::MessageLite* message,
                           Descriptor* descriptor, std::string* room) {
  room->resize(kMaxPacketBytes);
  iovec part = {room->data(), room->size()};
  msghdr packet = {};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor != nullptr) {
    packet.msg_control = control;
    packet.msg_controllen = sizeof(control);
  }
  // Without room for them, the system closes descriptors that come.
  const ssize_t got = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
  if (got < 0) return Failed("recvmsg");
  for (cmsghdr* head = CMSG_FIRSTHDR(&packet); head != nullptr;
       head = CMSG_NXTHDR(&packet, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    // The padding of `control` has room for one more.
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= head->cmsg_len;
         at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + at, sizeof(fd));
      *descriptor = Descriptor(fd);
    }
  }
  if (descriptor == nullptr && (packet.msg_flags & MSG_CTRUNC) != 0) {
    return absl::InvalidArgumentError("a packet with descriptors");
  }
  // No message is empty.
  if (got == 0) return absl::OutOfRangeError("the peer closed the socket");
  if ((packet.msg_flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a packet of more than ", kMaxPacketBytes, " bytes about contents"));
  }
  if (!message->ParseFromArray(room->data(), static_cast<int>(got))) {
    return absl::InvalidArgumentError("a packet that is no message");
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
