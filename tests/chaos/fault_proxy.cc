#include "tests/chaos/fault_proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

#include "common/base/clock.h"

namespace djinn {
namespace {

// Bytes that are held per direction before the sender must wait.
constexpr size_t kMaxHeld = 1 << 20;
constexpr size_t kReadBytes = 64 << 10;
// Time for which a throttled network accumulates allowance while it is silent.
constexpr absl::Duration kLongestBurst = absl::Milliseconds(20);

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

int NewSocket(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) Die("a path is too long");
  std::memcpy(address->sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("socket");
  return fd;
}

absl::Duration Now() { return Clock::Real()->Monotonic(); }

}  // namespace

struct FaultProxy::Connection {
  // One direction through the proxy.
  struct Direction {
    int from;
    int to;
    bool ended = false;  // the sender has closed
    bool passed_on = false;
    struct Piece {
      absl::Duration due;
      std::string bytes;
    };
    std::deque<Piece> held;
    size_t held_bytes = 0;
  };

  Connection(int near, int far)
      : near(near), far(far), up{near, far}, down{far, near} {}
  ~Connection() {
    close(near);
    close(far);
  }

  const int near;
  const int far;
  Direction up, down;
};

FaultProxy::FaultProxy(std::string path, std::string target)
    : path_(std::move(path)), target_(std::move(target)) {
  sockaddr_un address;
  listener_ = NewSocket(path_, &address);
  unlink(path_.c_str());
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
          0 ||
      listen(listener_, 64) != 0) {
    Die("listen");
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) Die("pipe2");
  poke_read_ = ends[0];
  poke_write_ = ends[1];
  thread_ = std::thread([this] { Run(); });
}

FaultProxy::~FaultProxy() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  Poke();
  thread_.join();
  for (const int fd : {listener_, poke_read_, poke_write_}) close(fd);
  unlink(path_.c_str());
}

void FaultProxy::Poke() {
  // A full pipe also wakes the thread.
  if (write(poke_write_, "", 1) < 0 && errno != EAGAIN) Die("poke");
}

void FaultProxy::Cut() {
  {
    MutexLock lock(&mu_);
    cut_ = true;
  }
  Poke();
}

void FaultProxy::CutAfter(uint64_t bytes) {
  MutexLock lock(&mu_);
  limited_ = true;
  left_ = bytes;
  cut_one_ = false;
}

void FaultProxy::CutOneAfter(uint64_t bytes) {
  MutexLock lock(&mu_);
  limited_ = true;
  left_ = bytes;
  cut_one_ = true;
}

void FaultProxy::Refuse(bool refuse) {
  MutexLock lock(&mu_);
  refuse_ = refuse;
}

void FaultProxy::Freeze(bool freeze) {
  {
    MutexLock lock(&mu_);
    frozen_ = freeze;
  }
  Poke();
}

void FaultProxy::Delay(absl::Duration delay) {
  MutexLock lock(&mu_);
  delay_ = delay;
}

void FaultProxy::Throttle(uint64_t bytes_per_second) {
  {
    MutexLock lock(&mu_);
    throttle_ = bytes_per_second;
    allowance_ = 0;
    allowed_at_ = Now();
  }
  Poke();
}

uint64_t FaultProxy::Allowance() {
  if (throttle_ == 0) return std::numeric_limits<uint64_t>::max();
  const absl::Duration now = Now();
  const double rate = static_cast<double>(throttle_);
  allowance_ =
      std::min(allowance_ + rate * absl::ToDoubleSeconds(now - allowed_at_),
               rate * absl::ToDoubleSeconds(kLongestBurst));
  allowed_at_ = now;
  return static_cast<uint64_t>(allowance_);
}

void FaultProxy::Heal() {
  {
    MutexLock lock(&mu_);
    throttle_ = 0;
    refuse_ = false;
    frozen_ = false;
    limited_ = false;
    delay_ = absl::ZeroDuration();
  }
  Poke();
}

uint64_t FaultProxy::connections() const {
  MutexLock lock(&mu_);
  return accepted_;
}

uint64_t FaultProxy::bytes() const {
  MutexLock lock(&mu_);
  return forwarded_;
}

void FaultProxy::CloseAll() { connections_.clear(); }

void FaultProxy::Accept() {
  const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (near < 0) return;
  {
    MutexLock lock(&mu_);
    ++accepted_;
    if (refuse_) {
      close(near);
      return;
    }
  }
  sockaddr_un address;
  const int far = NewSocket(target_, &address);
  if (connect(far, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(near);
    close(far);
    return;
  }
  for (const int fd : {near, far}) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  connections_.push_back(std::make_unique<Connection>(near, far));
}

bool FaultProxy::Forward(Connection* connection) {
  absl::Duration delay;
  {
    MutexLock lock(&mu_);
    delay = delay_;
  }
  const absl::Duration now = Now();
  for (Connection::Direction* way : {&connection->up, &connection->down}) {
    while (!way->ended && way->held_bytes < kMaxHeld) {
      std::string bytes(kReadBytes, '\0');
      const ssize_t got = read(way->from, bytes.data(), bytes.size());
      if (got < 0) {
        if (errno == EAGAIN) break;
        return false;
      }
      if (got == 0) {
        way->ended = true;
        break;
      }
      bytes.resize(static_cast<size_t>(got));
      way->held_bytes += bytes.size();
      way->held.push_back({now + delay, std::move(bytes)});
    }
    while (!way->held.empty() && way->held.front().due <= now) {
      std::string& bytes = way->held.front().bytes;
      size_t allowed = bytes.size();
      {
        MutexLock lock(&mu_);
        if (limited_) allowed = std::min<uint64_t>(allowed, left_);
        allowed = std::min<uint64_t>(allowed, Allowance());
      }
      const ssize_t put =
          allowed == 0 ? 0 : send(way->to, bytes.data(), allowed, MSG_NOSIGNAL);
      if (put < 0 && errno != EAGAIN) return false;
      if (put > 0) {
        way->held_bytes -= static_cast<size_t>(put);
        bytes.erase(0, static_cast<size_t>(put));
      }
      {
        MutexLock lock(&mu_);
        if (put > 0) {
          forwarded_ += static_cast<uint64_t>(put);
          allowance_ -= static_cast<double>(put);
        }
        if (limited_) {
          left_ -=
              std::min(left_, static_cast<uint64_t>(std::max<ssize_t>(put, 0)));
          if (left_ == 0) {
            limited_ = false;
            cut_ = !cut_one_;
            return false;
          }
        }
      }
      if (!bytes.empty()) break;
      way->held.pop_front();
    }
    if (way->ended && way->held.empty() && !way->passed_on) {
      way->passed_on = true;
      shutdown(way->to, SHUT_WR);
    }
  }
  return !(connection->up.passed_on && connection->down.passed_on);
}

void FaultProxy::Run() {
  for (;;) {
    bool frozen;
    {
      MutexLock lock(&mu_);
      if (stopping_) break;
      frozen = frozen_;
      if (cut_) {
        cut_ = false;
        CloseAll();
      }
    }
    std::vector<pollfd> polled = {{poke_read_, POLLIN, 0}};
    int timeout = -1;
    if (!frozen) {
      polled.push_back({listener_, POLLIN, 0});
      const absl::Duration now = Now();
      for (const auto& connection : connections_) {
        for (const auto* way : {&connection->up, &connection->down}) {
          // Bytes that wait for room are tried again soon.
          if (!way->ended && way->held_bytes < kMaxHeld) {
            polled.push_back({way->from, POLLIN, 0});
          }
          if (way->held.empty()) continue;
          const absl::Duration wait = way->held.front().due - now;
          const int milliseconds = static_cast<int>(
              std::max<int64_t>(1, absl::ToInt64Milliseconds(wait)));
          timeout =
              timeout < 0 ? milliseconds : std::min(timeout, milliseconds);
        }
      }
    }
    if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) {
      Die("poll");
    }
    char pokes[64];
    while (read(poke_read_, pokes, sizeof(pokes)) > 0) {
    }
    if (frozen) continue;
    if (polled[1].revents != 0) Accept();
    for (size_t i = 0; i < connections_.size();) {
      if (Forward(connections_[i].get())) {
        ++i;
      } else {
        connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
  }
  CloseAll();
}

}  // namespace djinn
