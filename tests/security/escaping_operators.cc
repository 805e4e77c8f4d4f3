// A library of one operator that tries to leave its process, as a tenant can
// that took its executor over.
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <torch/library.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "ATen/ops/full_like.h"
#include "tests/security/escapes.h"

namespace djinn {
namespace {

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
    case Escape::kManyThreads:
      return StartThreads(kManyThreads);
  }
  return 0;
}

// Returns the error of the escape in each element; 0 when it succeeded.
at::Tensor Attempt(const at::Tensor& x, int64_t escape, int64_t other) {
  errno = 0;
  const long result =
      Try(static_cast<Escape>(escape), static_cast<pid_t>(other));
  return at::full_like(x, result >= 0 ? 0 : errno);
}

TORCH_LIBRARY(escape, m) {
  m.def("attempt(Tensor x, int escape, int other) -> Tensor");
}
TORCH_LIBRARY_IMPL(escape, CPU, m) { m.impl("attempt", Attempt); }

}  // namespace
}  // namespace djinn
