// Connects plain sockets to a server under test, to say less than a client
// would.
#ifndef COMMON_NET_RAW_CONNECTION_H_
#define COMMON_NET_RAW_CONNECTION_H_

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/net/socket.h"

namespace djinn {

inline Socket MakeTcpSocket() {
  return Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// Connects `connection` to "127.0.0.1:PORT". Returns a socket without a
// descriptor if that fails.
inline Socket ConnectTo(const std::string& address,
                        Socket connection = MakeTcpSocket()) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  if (connect(connection.fd(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) !=
      0) {
    return Socket();
  }
  return connection;
}

// Connects clients of HTTP/2 that make no call.
inline std::vector<Socket> ConnectIdleClients(const std::string& address,
                                              int count) {
  const std::string preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::string bytes = preface + settings;
  std::vector<Socket> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(ConnectTo(address));
    send(clients.back().fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  return clients;
}

// Waits, without reading, until the peer has closed the connection.
inline void AwaitHangUp(const Socket& connection) {
  pollfd each{connection.fd(), POLLRDHUP, 0};
  poll(&each, 1, -1);
}

// Reads until the peer closes the connection.
inline std::string ReadAll(const Socket& connection) {
  std::string all;
  std::array<char, 64 << 10> bytes;
  for (;;) {
    const ssize_t size = recv(connection.fd(), bytes.data(), bytes.size(), 0);
    if (size <= 0) return all;
    all.append(bytes.data(), static_cast<size_t>(size));
  }
}

}  // namespace djinn

#endif  // COMMON_NET_RAW_CONNECTION_H_
