// Owns a file descriptor of a socket, opens listening sockets, and says which
// host a peer is.
#ifndef COMMON_NET_SOCKET_H_
#define COMMON_NET_SOCKET_H_

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace djinn {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.Release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  // Returns the descriptor, or -1.
  int fd() const { return fd_; }
  // Passes the descriptor to the caller.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct Listener {
  // One non-blocking socket for each address that the host's name stands for.
  std::vector<Socket> sockets;
  // Address with the port in use.
  std::string address;
};

// Returns the host of a peer. IPv6 addresses that share 64 bits are one host,
// because a network gives one subscriber all of them.
std::string HostOf(const sockaddr_storage& peer);

// Returns the first connection of the host that has most of them, so that one
// host does not push out the others. `connections` is not empty, and `of_host`
// counts them by their member `host`.
template <typename Connections, typename Counts>
typename Connections::iterator FirstOfBusiestHost(Connections* connections,
                                                  const Counts& of_host) {
  const std::string& busiest =
      std::max_element(of_host.begin(), of_host.end(),
                       [](const auto& left, const auto& right) {
                         return left.second < right.second;
                       })
          ->first;
  return std::find_if(connections->begin(), connections->end(),
                      [&](const auto& one) { return one.host == busiest; });
}

// Listens on "host:port" (port 0: any free one), which CheckAddress() accepted.
// Errors: Unavailable (CANNOT_LISTEN), which names the address.
absl::StatusOr<Listener> Listen(const std::string& address);

}  // namespace djinn

#endif  // COMMON_NET_SOCKET_H_
