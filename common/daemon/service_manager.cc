#include "common/daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace djinn {
namespace {

constexpr absl::string_view kReady = "READY=1";

}  // namespace

absl::Status NotifyReady() {
  const char* const place = std::getenv("NOTIFY_SOCKET");
  if (place == nullptr) return absl::OkStatus();
  const absl::string_view name = place;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (name.empty() || (name[0] != '/' && name[0] != '@') ||
      name.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("NOTIFY_SOCKET names no socket: ", name));
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  // An abstract name begins with a zero byte.
  if (name[0] == '@') address.sun_path[0] = 0;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const ssize_t sent = sendto(fd, kReady.data(), kReady.size(), MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address),
                              offsetof(sockaddr_un, sun_path) + name.size());
  const int error = errno;
  close(fd);
  if (sent == static_cast<ssize_t>(kReady.size())) return absl::OkStatus();
  return absl::ErrnoToStatus(error, absl::StrCat("NOTIFY_SOCKET ", name));
}

}  // namespace djinn
