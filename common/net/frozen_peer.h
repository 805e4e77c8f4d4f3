// A server for tests that speaks just enough HTTP/2 and then reads nothing
// more, so that the writes of clients stay half done in the socket.
#ifndef COMMON_NET_FROZEN_PEER_H_
#define COMMON_NET_FROZEN_PEER_H_

#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace djinn {

// Grants the largest HTTP/2 windows and reads nothing. With an `answer`, it
// reads the first message only, and answers it.
class FrozenPeer {
 public:
  explicit FrozenPeer(bool tcp, std::string answer = "")
      : answer_(std::move(answer)) {
    if (tcp) {
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      Listen(reinterpret_cast<sockaddr*>(&address), sizeof(address));
      socklen_t size = sizeof(address);
      Must(getsockname(listener_, reinterpret_cast<sockaddr*>(&address),
                       &size) == 0,
           "getsockname");
      address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    } else {
      // A socket's path must be short, so the socket is not in the test's own
      // folder.
      folder_ = "/tmp/djinn-frozen-XXXXXX";
      Must(mkdtemp(folder_.data()) != nullptr, "mkdtemp");
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      absl::StrCat(folder_, "/s")
          .copy(address.sun_path, sizeof(address.sun_path) - 1);
      Listen(reinterpret_cast<sockaddr*>(&address), sizeof(address));
      address_ = absl::StrCat("unix:", address.sun_path);
    }
    accepter_ = std::thread([this] { Accept(); });
  }
  ~FrozenPeer() {
    shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    close(listener_);
    for (const int connection : connections_) close(connection);
    if (folder_.empty()) return;
    unlink(absl::StrCat(folder_, "/s").c_str());
    rmdir(folder_.c_str());
  }

  const std::string& address() const { return address_; }

  // Waits until `bytes` bytes lie in the socket that the peer does not read.
  void WaitForBytes(int bytes) {
    for (int there = 0; there < bytes; std::this_thread::yield()) {
      if (last_ == -1) continue;
      Must(ioctl(last_, FIONREAD, &there) == 0, "ioctl");
    }
  }

 private:
  static void Must(bool done, const char* what) {
    if (done) return;
    std::perror(what);
    std::abort();
  }

  void Listen(const sockaddr* address, socklen_t size) {
    listener_ = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Must(bind(listener_, address, size) == 0 && listen(listener_, 16) == 0,
         "listen");
  }

  void Accept() {
    // SETTINGS: streams of 2^30 bytes, frames of 2^24 - 1. WINDOW_UPDATE: 2^30.
    static constexpr char kWelcome[] =
        "\x00\x00\x0c\x04\x00\x00\x00\x00\x00"
        "\x00\x04\x40\x00\x00\x00\x00\x05\x00\xff\xff\xff"
        "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x40\x00\x00\x00";
    for (;;) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      connections_.push_back(connection);
      Must(send(connection, kWelcome, sizeof(kWelcome) - 1, MSG_NOSIGNAL) ==
               sizeof(kWelcome) - 1,
           "send");
      if (answer_.empty()) {
        last_ = connection;
      } else {
        Answer(connection);
      }
    }
  }

  // Answers one message. Does nothing when the connection ends first.
  void Answer(int connection) {
    const auto receive = [connection](std::string* bytes) {
      return recv(connection, bytes->data(), bytes->size(), MSG_WAITALL) ==
             static_cast<ssize_t>(bytes->size());
    };
    std::string greeting(24, '\0');
    if (!receive(&greeting)) return;
    std::string header(9, '\0');
    do {
      if (!receive(&header)) return;
      // No frame at the beginning of a client's stream is longer.
      std::string payload(static_cast<uint8_t>(header[1]) << 8 |
                              static_cast<uint8_t>(header[2]),
                          '\0');
      if (!payload.empty() && !receive(&payload)) return;
    } while (header[3] != kData);
    last_ = connection;
    // ":status: 200", "content-type: application/grpc".
    std::string reply("\x00\x00\x14\x01\x04\x00\x00\x00\x01\x88\x0f\x10\x10",
                      13);
    reply += "application/grpc";
    reply += std::string("\x00\x00", 2);
    reply += static_cast<char>(answer_.size() + 5);
    reply += std::string("\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00", 10);
    reply += static_cast<char>(answer_.size());
    reply += answer_;
    Must(send(connection, reply.data(), reply.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(reply.size()),
         "send");
  }

  static constexpr char kData = 0;  // a frame's type

  const std::string answer_;   // short enough for one frame
  std::atomic<int> last_{-1};  // the connection accepted or answered last
  int listener_ = -1;
  std::string folder_, address_;
  std::vector<int> connections_;  // used by the thread only
  std::thread accepter_;
};

}  // namespace djinn

#endif  // COMMON_NET_FROZEN_PEER_H_
