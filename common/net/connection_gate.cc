#include "common/net/connection_gate.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"

namespace djinn {
namespace {

constexpr int kAcceptsAtOnce = 64;
constexpr absl::Duration kPause = absl::Milliseconds(50);

void Watch(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll, operation, fd, &event);
}

}  // namespace

ConnectionGate::ConnectionGate(std::vector<Socket> listeners, Options options)
    : listeners_(std::move(listeners)),
      options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  Watch(epoll_.fd(), EPOLL_CTL_ADD, wake_.fd(), EPOLLIN);
  for (const Socket& listener : listeners_) {
    Watch(epoll_.fd(), EPOLL_CTL_ADD, listener.fd(), EPOLLIN);
  }
  thread_ = std::thread([this] { Loop(); });
}

ConnectionGate::~ConnectionGate() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  eventfd_write(wake_.fd(), 1);
  thread_.join();
}

void ConnectionGate::Send(Socket connection, std::string answer) {
  {
    MutexLock lock(&mu_);
    to_send_.push_back(
        {std::move(connection), "", absl::InfiniteFuture(), std::move(answer)});
  }
  eventfd_write(wake_.fd(), 1);
}

void ConnectionGate::Loop() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const absl::Duration wait = TimeToNextDeadline();
    const int timeout =
        wait == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(absl::ToInt64Milliseconds(
                  absl::Ceil(std::max(wait, absl::ZeroDuration()),
                             absl::Milliseconds(1))));
    const int count =
        epoll_wait(epoll_.fd(), events.data(), events.size(), timeout);
    if (absl::Now() >= paused_until_ && paused_until_ != absl::InfinitePast()) {
      SetListening(true);
    }
    CloseExpired();
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake_.fd()) {
        eventfd_t ignored;
        eventfd_read(fd, &ignored);
        {
          MutexLock lock(&mu_);
          if (stopping_) return;
        }
        StartSends();
      } else if (by_fd_.contains(fd)) {
        HandleEvent(fd);
      } else if (std::any_of(listeners_.begin(), listeners_.end(),
                             [fd](const Socket& listener) {
                               return listener.fd() == fd;
                             })) {
        Accept(fd);
      }
      // Other events are of connections that this pass has closed.
    }
  }
}

void ConnectionGate::Accept(int listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    Socket socket(accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.fd() >= 0) {
      Admit(std::move(socket), HostOf(peer));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
        errno == ENOMEM) {
      // The kernel says so whether or not a connection waits.
      pollfd waiting{listener, POLLIN, 0};
      if (poll(&waiting, 1, 0) == 0) return;
      // A silent connection's descriptor serves one that may say something.
      if (MakeRoom()) continue;
      SetListening(false);
    }
    if (errno != EINTR && errno != ECONNABORTED) return;
  }
}

// Closes one connection, a silent one before one that reads its answer slowly.
// Returns false when there is none.
bool ConnectionGate::MakeRoom() {
  if (silent_.empty()) {
    if (sending_.empty()) return false;
    Drop(sending_.begin());
    return true;
  }
  Drop(FirstOfBusiestHost(&silent_, silent_of_host_));
  return true;
}

void ConnectionGate::Admit(Socket socket, std::string host) {
  if (by_fd_.size() >= options_.max_connections) MakeRoom();
  const int fd = socket.fd();
  ++silent_of_host_[host];
  silent_.push_back({std::move(socket), std::move(host),
                     absl::Now() + options_.first_bytes_timeout, ""});
  const auto connection = std::prev(silent_.end());
  by_fd_[fd] = connection;
  // Most peers' first bytes are here already.
  if (!Read(connection)) return;
  // Edge-triggered, because the bytes stay in the socket.
  Watch(epoll_.fd(), EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
}

void ConnectionGate::StartSends() {
  std::vector<Connection> to_send;
  {
    MutexLock lock(&mu_);
    to_send.swap(to_send_);
  }
  for (Connection& connection : to_send) {
    if (by_fd_.size() >= options_.max_connections) MakeRoom();
    const int fd = connection.socket.fd();
    connection.deadline = absl::Now() + options_.send_timeout;
    sending_.push_back(std::move(connection));
    by_fd_[fd] = std::prev(sending_.end());
    if (!Write(by_fd_[fd])) continue;
    Watch(epoll_.fd(), EPOLL_CTL_ADD, fd, EPOLLOUT | EPOLLET);
  }
}

void ConnectionGate::HandleEvent(int fd) {
  const Connections::iterator connection = by_fd_[fd];
  if (connection->answer.empty()) {
    Read(connection);
  } else {
    Write(connection);
  }
}

// Returns whether the gate keeps the connection.
bool ConnectionGate::Read(Connections::iterator connection) {
  std::array<char, kMaxFirstBytes> bytes;
  const ssize_t size = recv(connection->socket.fd(), bytes.data(), bytes.size(),
                            MSG_PEEK | MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  Verdict verdict = Verdict::kWrong;
  if (size > 0) {
    verdict = options_.judge(
        absl::string_view(bytes.data(), static_cast<size_t>(size)));
  }
  if (verdict == Verdict::kComplete) {
    options_.take(Remove(connection));
    return false;
  }
  if (verdict == Verdict::kWrong || static_cast<size_t>(size) == bytes.size()) {
    Drop(connection);
    return false;
  }
  return true;
}

// Returns whether the gate keeps the connection.
bool ConnectionGate::Write(Connections::iterator connection) {
  const std::string& answer = connection->answer;
  while (connection->sent < answer.size()) {
    const ssize_t size =
        send(connection->socket.fd(), answer.data() + connection->sent,
             answer.size() - connection->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return true;
    if (size < 0) {
      Drop(connection);
      return false;
    }
    connection->sent += static_cast<size_t>(size);
  }
  Remove(connection);
  return false;
}

// Resets the connection, so that the kernel keeps nothing for its peer.
void ConnectionGate::Drop(Connections::iterator connection) {
  const linger none{1, 0};
  setsockopt(connection->socket.fd(), SOL_SOCKET, SO_LINGER, &none,
             sizeof(none));
  Remove(connection);
}

Socket ConnectionGate::Remove(Connections::iterator connection) {
  Socket socket = std::move(connection->socket);
  by_fd_.erase(socket.fd());
  // Fails for a connection that is not watched yet.
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, socket.fd(), nullptr);
  if (!connection->answer.empty()) {
    sending_.erase(connection);
    return socket;
  }
  const auto count = silent_of_host_.find(connection->host);
  if (--count->second == 0) silent_of_host_.erase(count);
  silent_.erase(connection);
  return socket;
}

void ConnectionGate::CloseExpired() {
  const absl::Time now = absl::Now();
  for (Connections* each : {&silent_, &sending_}) {
    while (!each->empty() && each->front().deadline <= now) {
      Drop(each->begin());
    }
  }
}

absl::Duration ConnectionGate::TimeToNextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  if (!silent_.empty()) next = std::min(next, silent_.front().deadline);
  if (!sending_.empty()) next = std::min(next, sending_.front().deadline);
  if (paused_until_ != absl::InfinitePast()) {
    next = std::min(next, paused_until_);
  }
  return next - absl::Now();
}

void ConnectionGate::SetListening(bool listening) {
  const uint32_t events = listening ? uint32_t{EPOLLIN} : 0;
  paused_until_ = listening ? absl::InfinitePast() : absl::Now() + kPause;
  for (const Socket& listener : listeners_) {
    Watch(epoll_.fd(), EPOLL_CTL_MOD, listener.fd(), events);
  }
}

}  // namespace djinn
