#include "gpu_worker/device/cpu/host_turn.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "common/clock.h"

namespace djinn::worker {
namespace {

// How many may wait in line; others look again after a while.
constexpr int kLine = 64;
constexpr absl::Duration kLook = absl::Milliseconds(20);

class Address {
 public:
  explicit Address(const std::string& name) {
    address_.sun_family = AF_UNIX;
    // A zero first: the name is no file's.
    const size_t bytes = std::min(name.size(), sizeof(address_.sun_path) - 1);
    std::memcpy(address_.sun_path + 1, name.data(), bytes);
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&address_);
  }
  socklen_t size() const { return size_; }

 private:
  sockaddr_un address_ = {};
  socklen_t size_ = 0;
};

int MakeSocket() {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// Until whoever has the turn gives it up, or for so long.
void AwaitEnd(const Address& address, absl::Duration patience) {
  const int waiting = MakeSocket();
  // Nobody accepts it: it ends with the other's socket.
  const bool in_line =
      waiting >= 0 && connect(waiting, address.get(), address.size()) == 0;
  pollfd end = {waiting, POLLIN, 0};
  if (!in_line) {
    // The line is full, or the other has bound its socket and does not listen
    // yet: there is nothing to wait at.
    end.fd = -1;
    patience = std::min(patience, kLook);
  }
  poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)) + 1);
  if (waiting >= 0) close(waiting);
}

}  // namespace

HostTurn::HostTurn(const std::string& name, absl::Duration patience) {
  const Address address(name);
  const absl::Duration end = Clock::Real()->Monotonic() + patience;
  for (;;) {
    const int listener = MakeSocket();
    if (listener < 0) return;
    if (bind(listener, address.get(), address.size()) == 0 &&
        listen(listener, kLine) == 0) {
      listener_ = listener;
      return;
    }
    const bool waits = errno == EADDRINUSE;
    close(listener);
    const absl::Duration left = end - Clock::Real()->Monotonic();
    if (!waits || left <= absl::ZeroDuration()) return;
    AwaitEnd(address, left);
  }
}

HostTurn::~HostTurn() {
  if (listener_ >= 0) close(listener_);
}

}  // namespace djinn::worker
