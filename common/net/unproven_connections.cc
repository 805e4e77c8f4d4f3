#include "common/net/unproven_connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/log/log.h"

namespace djinn {
namespace {

constexpr size_t kMostConnections = 8192;
constexpr absl::Duration kWarningInterval = absl::Minutes(1);

// Returns the peer as "host:port", without the brackets and the zone that gRPC
// writes around and behind an IPv6 address.
std::string NameOf(const sockaddr_storage& peer) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  in_port_t port = 0;
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    inet_ntop(AF_INET, &v4.sin_addr, host.data(), host.size());
    port = v4.sin_port;
  } else if (peer.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], host.data(), host.size());
    } else {
      inet_ntop(AF_INET6, &v6.sin6_addr, host.data(), host.size());
    }
    port = v6.sin6_port;
  }
  return absl::StrCat(host.data(), ":", ntohs(port));
}

// Returns the same for a peer that gRPC names, such as "ipv4:10.0.0.1:2000" or
// "ipv6:%5Bfe80::1%252%5D:2000".
std::string NameOf(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:")) absl::ConsumePrefix(&peer, "ipv6:");
  const std::string plain = absl::StrReplaceAll(
      peer, {{"%5B", ""}, {"%5b", ""}, {"[", ""}, {"%5D", "]"}, {"%5d", "]"}});
  const size_t end = plain.rfind(']');
  if (end == std::string::npos) return plain;
  const std::string host = plain.substr(0, end);
  return absl::StrCat(host.substr(0, host.find('%')), plain.substr(end + 1));
}

}  // namespace

UnprovenConnections::UnprovenConnections(size_t max_connections)
    : max_connections_(max_connections), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

UnprovenConnections::~UnprovenConnections() = default;

size_t UnprovenConnections::DefaultMax() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostConnections;
  return std::clamp<size_t>(limit.rlim_cur / 8, 1, kMostConnections);
}

bool UnprovenConnections::Enter(const Socket& connection) {
  const bool entered = TryEnter(connection);
  uint64_t closed;
  {
    MutexLock lock(&mu_);
    if (!entered) ++closed_;
    if (closed_ == 0 || absl::Now() < warn_from_) return entered;
    warn_from_ = absl::Now() + kWarningInterval;
    closed = std::exchange(closed_, 0);
  }
  log::Warning("closed connections of peers that have shown no token",
               {{"closed", closed}, {"limit", max_connections_}});
  return entered;
}

bool UnprovenConnections::TryEnter(const Socket& connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  // Fails for a connection that has ended, which its owner will see.
  if (getpeername(connection.fd(), reinterpret_cast<sockaddr*>(&address),
                  &size) != 0) {
    return true;
  }
  std::string peer = NameOf(address);
  std::string host = HostOf(address);
  MutexLock lock(&mu_);
  Reap();
  if (connections_.size() >= max_connections_) MakeRoom();
  Socket copy(fcntl(connection.fd(), F_DUPFD_CLOEXEC, 0));
  if (copy.fd() < 0 && MakeRoom()) {
    copy = Socket(fcntl(connection.fd(), F_DUPFD_CLOEXEC, 0));
  }
  if (copy.fd() < 0) return false;
  // A peer that reaches two addresses of this host may do so from one port.
  const auto same = by_peer_.find(peer);
  if (same != by_peer_.end()) Close(same->second);
  ++of_host_[host];
  connections_.push_back({std::move(copy), peer, std::move(host)});
  const auto entered = std::prev(connections_.end());
  by_peer_[std::move(peer)] = entered;
  epoll_event event{};
  // Reports only the end of both directions: gRPC may not have noticed yet that
  // the peer ended one.
  event.data.ptr = &*entered;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, entered->socket.fd(), &event);
  return true;
}

void UnprovenConnections::NoteProven(absl::string_view peer) {
  const std::string name = NameOf(peer);
  MutexLock lock(&mu_);
  const auto found = by_peer_.find(name);
  if (found != by_peer_.end()) Remove(found->second);
}

size_t UnprovenConnections::size() {
  MutexLock lock(&mu_);
  Reap();
  return connections_.size();
}

void UnprovenConnections::Reap() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count =
        epoll_wait(epoll_.fd(), events.data(), events.size(), /*timeout=*/0);
    if (count <= 0) return;
    for (int i = 0; i < count; ++i) {
      const auto* const ended =
          static_cast<const Connection*>(events[i].data.ptr);
      Remove(by_peer_.find(ended->peer)->second);
    }
  }
}

bool UnprovenConnections::MakeRoom() {
  if (connections_.empty()) return false;
  Close(FirstOfBusiestHost(&connections_, of_host_));
  ++closed_;
  return true;
}

void UnprovenConnections::Close(Connections::iterator connection) {
  // The last descriptor's end resets the connection, so that the kernel keeps
  // nothing for the peer.
  const linger none{1, 0};
  setsockopt(connection->socket.fd(), SOL_SOCKET, SO_LINGER, &none,
             sizeof(none));
  shutdown(connection->socket.fd(), SHUT_RDWR);
  Remove(connection);
}

void UnprovenConnections::Remove(Connections::iterator connection) {
  // Not implied by closing the copy, because its owner has the connection, too.
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, connection->socket.fd(), nullptr);
  const auto count = of_host_.find(connection->host);
  if (--count->second == 0) of_host_.erase(count);
  by_peer_.erase(connection->peer);
  connections_.erase(connection);
}

}  // namespace djinn
