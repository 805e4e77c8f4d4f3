#include "common/net/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace djinn {
namespace {

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return MakeError(
      absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
      absl::StrCat("cannot listen on \"", address, "\": ", why),
      {{"address", address}});
}

// Returns the port, in the network's order. Both families keep it in the same
// place.
in_port_t* PortOf(sockaddr* address) {
  return &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Listener> Listen(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  std::string port = address.substr(colon + 1);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return CannotListen(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found,
                                                                 freeaddrinfo);
  Listener listener;
  in_port_t bound = 0;
  int failure = 0;
  for (addrinfo* each = found; each != nullptr; each = each->ai_next) {
    // The further addresses of a name share the port that the first one got.
    if (bound != 0) *PortOf(each->ai_addr) = bound;
    Socket socket(::socket(each->ai_family,
                           SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (socket.fd() < 0 ||
        setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) !=
            0 ||
        bind(socket.fd(), each->ai_addr, each->ai_addrlen) != 0 ||
        listen(socket.fd(), SOMAXCONN) != 0) {
      failure = errno;
      continue;
    }
    sockaddr_storage name{};
    socklen_t size = sizeof(name);
    getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &size);
    bound = *PortOf(reinterpret_cast<sockaddr*>(&name));
    listener.sockets.push_back(std::move(socket));
  }
  if (listener.sockets.empty()) {
    return CannotListen(address, strerror(failure));
  }
  listener.address =
      absl::StrCat(address.substr(0, colon), ":", ntohs(bound));
  return listener;
}

}  // namespace djinn
