#include "gpu_worker/sandbox/file_broker.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::worker {
namespace {

// Kinds of requests to the broker. The path follows the header, with its final
// zero.
enum class Ask : int32_t { kLibraries, kReadable, kDevice, kConfine, kOpen };

struct Header {
  Ask ask;
  int32_t flags;
};

// The answer to each packet: 0 or an error number. A descriptor comes with a
// successful kOpen.
using Answer = int32_t;

constexpr int kAnswerSeconds = 10;

// Flags that neither create a file nor change what is not its content.
constexpr int kHarmless =
    O_ACCMODE | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_DIRECTORY | O_NOFOLLOW;

// All rights of the first version of Landlock (Linux 5.13). Those of later
// versions concern what the flags above exclude.
constexpr uint64_t kRights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
constexpr uint64_t kReadTree =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kReadAndWriteFile =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;

constexpr size_t kControlBytes = CMSG_SPACE(sizeof(int));

absl::Status SystemError(absl::string_view what, int error) {
  return MakeError(
      absl::StatusCode::kInternal, "NO_SANDBOX",
      absl::StrCat("the broker of files: ", what, ": ", std::strerror(error)));
}

// Returns whether `path` is `folder` or lies beneath it.
bool IsBeneath(absl::string_view path, absl::string_view folder) {
  return absl::StartsWith(path, folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

// Returns the path without "." and "..". The broker opens what this returns, so
// links cannot give the same name another meaning.
std::string Plain(const std::string& path) {
  std::string plain = std::filesystem::path(path).lexically_normal();
  if (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return plain;
}

// The process of the broker. It has one thread, and is trusted.
class Broker {
 public:
  explicit Broker(int socket) : socket_(socket) {}

  [[noreturn]] void Serve() {
    for (;;) {
      struct {
        Header header;
        char path[PATH_MAX];
      } packet = {};
      const ssize_t size = recv(socket_, &packet, sizeof(packet), 0);
      if (size < 0 && errno == EINTR) continue;
      // The process is gone, or sends what it never sends.
      if (size <= static_cast<ssize_t>(sizeof(Header))) _exit(0);
      packet.path[sizeof(packet.path) - 1] = '\0';
      int opened = -1;
      const int error = Handle(packet.header, packet.path, &opened);
      Answer(error, opened);
    }
  }

 private:
  // Returns 0 or an error number.
  int Handle(const Header& header, const std::string& path, int* opened) {
    if (header.ask == Ask::kOpen) {
      if (!confined_) return EACCES;
      return Open(path, header.flags, opened);
    }
    // Rules that come later would be the tenant's.
    if (confined_) return EACCES;
    switch (header.ask) {
      case Ask::kLibraries:
        rules_.libraries.push_back(path);
        return 0;
      case Ask::kReadable:
        rules_.readable.push_back(path);
        return 0;
      case Ask::kDevice:
        rules_.devices.push_back(path);
        return 0;
      case Ask::kConfine:
        return Confine();
      case Ask::kOpen:
        break;
    }
    return EINVAL;
  }

  int Open(const std::string& asked, int flags, int* opened) const {
    const std::string path = Plain(asked);
    if ((flags & ~kHarmless) != 0 || !absl::StartsWith(path, "/") ||
        !IsListed(path, flags)) {
      return EACCES;
    }
    *opened = open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY);
    return *opened < 0 ? errno : 0;
  }

  bool IsListed(absl::string_view path, int flags) const {
    for (const std::string& device : rules_.devices) {
      if (path == device) return true;
    }
    if ((flags & O_ACCMODE) != O_RDONLY) return false;
    for (const std::string& readable : rules_.readable) {
      if (IsBeneath(path, readable)) return true;
    }
    const absl::string_view name = path.substr(path.rfind('/') + 1);
    for (const std::string& folder : rules_.libraries) {
      // The loader asks whether the folder exists.
      if (path == folder) return true;
      if (IsBeneath(path, folder) && absl::StrContains(name, ".so")) {
        return true;
      }
    }
    return false;
  }

  int Confine() {
    const landlock_ruleset_attr attributes = {.handled_access_fs = kRights};
    const int rules = static_cast<int>(syscall(
        SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0));
    if (rules < 0) return errno;
    int error = 0;
    const auto allow = [&](const std::vector<std::string>& paths,
                           uint64_t rights) {
      for (const std::string& path : paths) {
        if (error == 0) error = Allow(rules, path, rights);
      }
    };
    allow(rules_.libraries, kReadTree);
    allow(rules_.readable, kReadTree);
    allow(rules_.devices, kReadAndWriteFile);
    if (error != 0) return error;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) != 0) {
      return errno;
    }
    close(rules);
    confined_ = true;
    return 0;
  }

  static int Allow(int rules, const std::string& path, uint64_t rights) {
    const int file = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (file < 0) return errno == ENOENT ? 0 : errno;
    landlock_path_beneath_attr beneath = {.allowed_access = rights,
                                          .parent_fd = file};
    const auto add = [&] {
      return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH,
                     &beneath, 0) == 0;
    };
    bool added = add();
    if (!added && errno == EINVAL && rights == kReadTree) {
      // A single file has no right to be listed.
      beneath.allowed_access = kReadFile;
      added = add();
    }
    const int error = added ? 0 : errno;
    close(file);
    return error;
  }

  void Answer(int error, int opened) const {
    worker::Answer answer = error;
    iovec bytes = {&answer, sizeof(answer)};
    alignas(cmsghdr) char control[kControlBytes] = {};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (opened >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &opened, sizeof(opened));
    }
    const ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (opened >= 0) close(opened);
    if (sent < 0) _exit(0);
  }

  const int socket_;
  FileRules rules_;
  bool confined_ = false;
};

// Orders the exchanges of all threads. A mutex cannot be used in a signal
// handler.
std::atomic_flag exchanging = ATOMIC_FLAG_INIT;

// Sends a packet and waits for its answer. Returns the descriptor that came
// with it, 0 if none did, or a negative error number. Safe in a signal handler.
int Exchange(int socket, Ask ask, const char* path, int flags) {
  Header header = {ask, flags};
  const size_t length = strnlen(path, PATH_MAX);
  if (length == PATH_MAX) return -ENAMETOOLONG;
  iovec packet[] = {{&header, sizeof(header)},
                    {const_cast<char*>(path), length + 1}};
  msghdr message = {};
  message.msg_iov = packet;
  message.msg_iovlen = 2;
  Answer answer = EPIPE;
  iovec bytes = {&answer, sizeof(answer)};
  alignas(cmsghdr) char control[kControlBytes] = {};
  msghdr reply = {};
  reply.msg_iov = &bytes;
  reply.msg_iovlen = 1;
  reply.msg_control = control;
  reply.msg_controllen = sizeof(control);
  while (exchanging.test_and_set(std::memory_order_acquire)) sched_yield();
  ssize_t size = sendmsg(socket, &message, MSG_NOSIGNAL);
  if (size > 0) {
    do {
      size = recvmsg(socket, &reply, MSG_CMSG_CLOEXEC);
    } while (size < 0 && errno == EINTR);
    // A late answer would be taken for that of the next packet.
    if (size < 0) shutdown(socket, SHUT_RDWR);
  }
  exchanging.clear(std::memory_order_release);
  if (size != sizeof(answer)) return -EACCES;
  if (answer != 0) return -answer;
  const cmsghdr* const passed = CMSG_FIRSTHDR(&reply);
  if (passed == nullptr) return 0;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(passed), sizeof(descriptor));
  return descriptor;
}

}  // namespace

absl::StatusOr<FileBroker> FileBroker::Fork() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemError("socketpair", errno);
  }
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  const timeval patience = {kAnswerSeconds, 0};
  if (setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &patience,
                 sizeof(patience)) != 0) {
    return SystemError("SO_RCVTIMEO", errno);
  }
  RefuseDescriptors(theirs.get());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return SystemError("fork", errno);
  if (child == 0) {
    // Holds nothing of the executor's but the log and this socket, or peers of
    // an executor that ended would not learn of it.
    dup2(theirs.get(), STDERR_FILENO + 1);
    close_range(STDERR_FILENO + 2, ~0U, 0);
    prctl(PR_SET_NAME, "djinn-files");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    Broker(STDERR_FILENO + 1).Serve();
  }
  return FileBroker(std::move(ours));
}

absl::Status FileBroker::Confine(const FileRules& rules) {
  const auto tell = [&](Ask ask, const std::string& path) {
    const int error = -Exchange(socket_.get(), ask, path.c_str(), 0);
    if (error == 0) return absl::OkStatus();
    if (ask == Ask::kConfine && (error == ENOSYS || error == EOPNOTSUPP)) {
      return MakeError(
          absl::StatusCode::kUnimplemented, "NO_SANDBOX",
          absl::StrCat(
              "the kernel has no Landlock, to which a tenant's process on a "
              "GPU "
              "is confined: Linux 5.13 or later is needed, built with "
              "CONFIG_SECURITY_LANDLOCK and started with landlock in its lsm= "
              "list: ",
              std::strerror(error)));
    }
    return SystemError(ask == Ask::kConfine ? "Landlock" : path, error);
  };
  for (const std::string& path : rules.libraries) {
    DJINN_RETURN_IF_ERROR(tell(Ask::kLibraries, path));
  }
  for (const std::string& path : rules.readable) {
    DJINN_RETURN_IF_ERROR(tell(Ask::kReadable, path));
  }
  for (const std::string& path : rules.devices) {
    DJINN_RETURN_IF_ERROR(tell(Ask::kDevice, path));
  }
  return tell(Ask::kConfine, "");
}

int FileBroker::Open(const char* path, int flags) const {
  const int opened = Exchange(socket_.get(), Ask::kOpen, path, flags);
  // Descriptor 0 is open since the start.
  return opened == 0 ? -EACCES : opened;
}

}  // namespace djinn::worker
