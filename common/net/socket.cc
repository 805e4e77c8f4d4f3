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
  return MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                   absl::StrCat("cannot listen on \"", address, "\": ", why),
                   {{"address", address}});
}

// Returns the port, in the network's order. Both families keep it in the same
// place.
in_port_t* PortOf(sockaddr* address) {
  return &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

// Listens on the addresses of `host`. Returns their port, in the network's
// order. Without any, returns 0 and says why.
in_port_t Bind(const std::string& host, const std::string& port,
               std::vector<Socket>* sockets, std::string* failure) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error =
          getaddrinfo(host.c_str(), port.c_str(), &hints, &found)) {
    *failure = gai_strerror(error);
    return 0;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found,
                                                                 freeaddrinfo);
  in_port_t bound = 0;
  for (addrinfo* each = found; each != nullptr; each = each->ai_next) {
    // The further addresses of a name share the port that the first one got.
    if (bound != 0) *PortOf(each->ai_addr) = bound;
    Socket socket(::socket(each->ai_family,
                           SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int yes = 1;
    const int no = 0;
    if (each->ai_family == AF_INET6) {
      setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    }
    if (socket.fd() < 0 ||
        setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) !=
            0 ||
        bind(socket.fd(), each->ai_addr, each->ai_addrlen) != 0 ||
        listen(socket.fd(), SOMAXCONN) != 0) {
      *failure = strerror(errno);
      continue;
    }
    sockaddr_storage name{};
    socklen_t size = sizeof(name);
    getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &size);
    bound = *PortOf(reinterpret_cast<sockaddr*>(&name));
    sockets->push_back(std::move(socket));
  }
  return bound;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

std::string HostOf(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    return std::string(reinterpret_cast<const char*>(&v4), sizeof(v4));
  }
  if (peer.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    const size_t bytes = IN6_IS_ADDR_V4MAPPED(&v6) ? sizeof(v6) : 8;
    return std::string(reinterpret_cast<const char*>(&v6), bytes);
  }
  return "";
}

absl::StatusOr<Listener> Listen(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string port = address.substr(colon + 1);
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  // Either spelling stands for all addresses of both families.
  const bool all = host == "::" || host == "0.0.0.0";
  std::string failure;
  for (const std::string& each : all ? std::vector<std::string>{"::", "0.0.0.0"}
                                     : std::vector<std::string>{host}) {
    Listener listener;
    const in_port_t bound = Bind(each, port, &listener.sockets, &failure);
    if (listener.sockets.empty()) {
      // A host without IPv6 has no "::". A port in use is in use.
      if (failure == strerror(EADDRINUSE)) break;
      continue;
    }
    listener.address =
        absl::StrCat(address.substr(0, colon), ":", ntohs(bound));
    return listener;
  }
  return CannotListen(address, failure);
}

}  // namespace djinn
