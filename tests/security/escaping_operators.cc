// A library of one operator that tries to leave its process, as a tenant can
// that took its executor over.
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <torch/library.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <string>

#include "ATen/ops/full_like.h"
#include "tests/security/escapes.h"

namespace djinn {
namespace {

// Descriptors that an executor inherits; see gpu_worker/supervisor/launcher.h.
constexpr int kSupervisionFd = 3;
constexpr int kTurnEventFd = 7;
constexpr int kContentsFd = 9;
constexpr int kLastFd = kContentsFd;

// Returns the result of the first call that succeeds, or of the last one, for
// the descriptors that the process inherited.
template <typename Call>
long ForDescriptors(const Call& call) {
  long result = -1;
  for (int fd = 0; fd <= kLastFd && result < 0; ++fd) result = call(fd);
  return result;
}

// Sends a byte with a copy of descriptor 0.
long SendDescriptor(int socket) {
  char byte = 'x';
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = STDIN_FILENO;
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof(descriptor));
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

// Starts threads that stay, and returns how many.
long StartThreads(int count) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  const auto stay = [](void*) -> void* {
    for (;;) pause();
  };
  int started = 0;
  pthread_t thread;
  while (started < count &&
         pthread_create(&thread, &small, stay, nullptr) == 0) {
    ++started;
  }
  return started;
}

// Returns the result of a system call.
long TryAllowed(Attempt attempt) {
  switch (attempt) {
    case Attempt::kShutLogDown: {
      const long output = shutdown(STDOUT_FILENO, SHUT_RDWR);
      return output < 0 ? shutdown(STDERR_FILENO, SHUT_RDWR) : output;
    }
    case Attempt::kForgeLine:
      return write(STDERR_FILENO, kForged, std::strlen(kForged));
    case Attempt::kTakeEvent: {
      uint64_t count = 0;
      return read(kTurnEventFd, &count, sizeof(count));
    }
    case Attempt::kSendDescriptors: {
      long result = -1;
      for (const int fd : {kSupervisionFd, kContentsFd}) {
        if (result < 0) result = SendDescriptor(fd);
      }
      return result;
    }
    case Attempt::kStartThreads:
      return StartThreads(kManyThreads);
  }
  return 0;
}

// Returns the result of a system call.
long Try(Escape escape, pid_t other) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(1);
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  switch (escape) {
    case Escape::kOpenFile:
      return open("/etc/passwd", O_RDONLY);
    case Escape::kOpenMemoryOfOther:
      return open(("/proc/" + std::to_string(other) + "/mem").c_str(), O_RDWR);
    case Escape::kSocket:
      return socket(AF_INET, SOCK_STREAM, 0);
    case Escape::kConnectBySending:
      // The flag is refused, whatever the descriptor.
      return sendto(STDERR_FILENO, "x", 1, MSG_FASTOPEN, any, sizeof(address));
    case Escape::kFork: {
      const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
      if (child == 0) _exit(0);
      return child;
    }
    case Escape::kTrace:
      return ptrace(PTRACE_ATTACH, other, nullptr, nullptr);
    case Escape::kSignal:
      return kill(other, SIGKILL);
    case Escape::kLimitsOfOther: {
      rlimit limit;
      return prlimit(other, RLIMIT_AS, nullptr, &limit);
    }
    case Escape::kClockOfOther: {
      timespec time;
      const auto clock =
          static_cast<clockid_t>(~static_cast<unsigned>(other) << 3 | 2);
      return syscall(SYS_clock_gettime, clock, &time);
    }
    case Escape::kMakeMemoryFile:
      return memfd_create("memory", MFD_CLOEXEC);
    case Escape::kMakeSharedMemory:
      return mmap(nullptr, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1,
                  0) == MAP_FAILED
                 ? -1
                 : 0;
    case Escape::kResizeDescriptors:
      return ForDescriptors([](int fd) { return ftruncate(fd, 0); });
    case Escape::kMakeDescriptorsBlock:
      return ForDescriptors([](int fd) { return fcntl(fd, F_SETFL, 0); });
  }
  return 0;
}

// Returns the error of the escape in each element; 0 when it succeeded.
at::Tensor Run(const at::Tensor& x, int64_t escape, int64_t other) {
  errno = 0;
  const long result =
      escape <= static_cast<int64_t>(kLastEscape)
          ? Try(static_cast<Escape>(escape), static_cast<pid_t>(other))
          : TryAllowed(static_cast<Attempt>(escape));
  return at::full_like(x, result >= 0 ? 0 : errno);
}

TORCH_LIBRARY(escape, m) {
  m.def("attempt(Tensor x, int escape, int other) -> Tensor");
}
TORCH_LIBRARY_IMPL(escape, CPU, m) { m.impl("attempt", Run); }

}  // namespace
}  // namespace djinn
