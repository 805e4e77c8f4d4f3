#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/supervisor/launcher.h"
#include "gpu_worker/supervisor/process_threads.h"

extern char** environ;

namespace djinn::worker {
namespace {

constexpr int kBacklog = 1024;
constexpr char kUnix[] = "unix:";

// Prefix of the variables that executors on a GPU get, too: they choose GPUs
// and configure the driver. Logs and debuggers of the driver have other
// prefixes.
constexpr absl::string_view kInheritedWithGpu = "CUDA_";

// Variables that libraries read and that hold no secret.
constexpr absl::string_view kInherited[] = {"OMP_",
                                            "GOMP_",
                                            "KMP_",
                                            "MKL_",
                                            "DNNL_",
                                            "ONEDNN_",
                                            "ATEN_",
                                            "TORCH_",
                                            "PYTORCH_",
                                            "BLIS_",
                                            "GOTO_",
                                            "OPENBLAS_",
                                            "MALLOC_",
                                            "GLIBC_",
                                            "LD_LIBRARY_PATH=",
                                            "TZ=",
                                            "LANG=",
                                            "PATH=",
                                            "DJINN_LOG_LEVEL="};

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return MakeError(
      absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
      absl::StrCat("an executor cannot listen on \"", address, "\": ", why),
      {{"address", address}});
}

// Returns the host of "host:port".
std::string HostOf(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

absl::StatusOr<Descriptor> ListenAtPath(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return CannotListen(path, "the path is too long");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  unlink(path.c_str());
  if (!socket.valid() ||
      bind(socket.get(), reinterpret_cast<sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return CannotListen(path, std::strerror(errno));
  }
  return socket;
}

// Returns a socket that listens at the port, and sets `port` to the real one.
absl::StatusOr<Descriptor> ListenAtPort(const addrinfo& host, uint16_t* port,
                                        const std::string& name) {
  sockaddr_storage address = {};
  std::memcpy(&address, host.ai_addr, host.ai_addrlen);
  // The port lies at the same offset in both families.
  auto* const four = reinterpret_cast<sockaddr_in*>(&address);
  four->sin_port = htons(*port);
  Descriptor socket(::socket(host.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket.valid() ||
      setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) !=
          0 ||
      bind(socket.get(), reinterpret_cast<sockaddr*>(&address),
           host.ai_addrlen) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return CannotListen(absl::StrCat(name, ":", *port), std::strerror(errno));
  }
  socklen_t size = sizeof(address);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) !=
      0) {
    return CannotListen(name, std::strerror(errno));
  }
  *port = ntohs(four->sin_port);
  return socket;
}

// Returns a copy of the descriptor that lies above those of an executor, so
// that placing one does not overwrite the next. Invalid when there is no room
// for it.
Descriptor Above(const Descriptor& descriptor) {
  return Descriptor(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kLastFd + 5));
}

std::vector<char*> InheritedEnvironment(bool gpu) {
  std::vector<char*> inherited;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (gpu && absl::StartsWith(*variable, kInheritedWithGpu)) {
      inherited.push_back(*variable);
      continue;
    }
    for (const absl::string_view prefix : kInherited) {
      if (!absl::StartsWith(*variable, prefix)) continue;
      inherited.push_back(*variable);
      break;
    }
  }
  inherited.push_back(nullptr);
  return inherited;
}

class ProcessLauncher : public Launcher {
 public:
  explicit ProcessLauncher(ProcessLauncherOptions options)
      : options_(std::move(options)) {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) descriptors_ = limit;
  }

  absl::StatusOr<ExecutorListeners> Listen(uint64_t number) override {
    ExecutorListeners made;
    if (absl::StartsWith(options_.listen, kUnix)) {
      made.address = absl::StrCat(options_.listen, ".", number);
      DJINN_ASSIGN_OR_RETURN(
          made.listener,
          ListenAtPath(std::string(absl::StripPrefix(made.address, kUnix))));
    } else {
      uint16_t port = 0;
      DJINN_ASSIGN_OR_RETURN(made.listener, ListenAtAnyPort(&port));
      const std::string& shown =
          options_.advertise.empty() ? options_.listen : options_.advertise;
      made.address = absl::StrCat(HostOf(shown), ":", port);
    }
    if (!options_.shared_memory_socket.empty()) {
      made.shared_memory_socket =
          absl::StrCat(options_.shared_memory_socket, ".", number);
      DJINN_ASSIGN_OR_RETURN(made.shared_memory_listener,
                             ListenForSharedMemory(made.shared_memory_socket));
    }
    return made;
  }

  absl::StatusOr<LaunchedExecutor> Launch(const ExecutorListeners& listeners,
                                          const Arbiter::Seat& seat) override {
    LaunchedExecutor launched;
    DJINN_ASSIGN_OR_RETURN(const Descriptor theirs,
                           MakeSocket(SOCK_STREAM, &launched.socket));
    DJINN_ASSIGN_OR_RETURN(const Descriptor their_fetching,
                           MakeSocket(SOCK_STREAM, &launched.fetching));
    DJINN_ASSIGN_OR_RETURN(const Descriptor their_contents,
                           MakeSocket(SOCK_SEQPACKET, &launched.contents));
    // The process must not wait for the supervisor, so lines may be lost.
    int log_ends[2];
    if (pipe2(log_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      return Failed("pipe2", errno);
    }
    launched.log = Descriptor(log_ends[0]);
    const Descriptor their_log(log_ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    const absl::Cleanup destroy = [&] {
      posix_spawn_file_actions_destroy(&actions);
      posix_spawnattr_destroy(&attributes);
    };
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                     O_RDONLY, 0);
    std::vector<Descriptor> copies;
    const std::pair<const Descriptor*, int> placed[] = {
        {&their_log, STDOUT_FILENO},
        {&their_log, STDERR_FILENO},
        {&theirs, kSupervisionFd},
        {&listeners.listener, kListenerFd},
        {&listeners.shared_memory_listener, kSharedMemoryListenerFd},
        {&seat.word, kTurnWordFd},
        {&seat.event, kTurnEventFd},
        {&their_fetching, kFetchingFd},
        {&their_contents, kContentsFd}};
    for (const auto& [descriptor, at] : placed) {
      if (!descriptor->valid()) continue;
      copies.push_back(Above(*descriptor));
      if (!copies.back().valid()) {
        return Failed(absl::StrCat("a copy for descriptor ", at), errno);
      }
      const int error =
          posix_spawn_file_actions_adddup2(&actions, copies.back().get(), at);
      if (error != 0) {
        return Failed(absl::StrCat("placing descriptor ", at), error);
      }
    }
    // The supervisor has blocked the signals that end it. SIGTERM of a whole
    // group must not end executors before their supervisor has told clients.
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes, &all);
    // The broker of its files (file_broker.h) is in the group, too.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    char program[PATH_MAX];
    const ssize_t length =
        readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length <= 0) return Failed("readlink", errno);
    program[length] = '\0';
    char name[] = "djinn-worker";
    char mode[] = "--executor";
    char* const arguments[] = {name, mode, nullptr};
    const int error =
        posix_spawn(&launched.pid, program, &actions, &attributes, arguments,
                    InheritedEnvironment(options_.gpu).data());
    if (error != 0) return Failed("posix_spawn", error);
    // This process may have raised its own limit since. The call fails if the
    // new process has ended, which needs no limit.
    if (descriptors_.has_value()) {
      prlimit(launched.pid, RLIMIT_NOFILE, &*descriptors_, nullptr);
    }
    return launched;
  }

  void Kill(pid_t pid) override { kill(pid, SIGKILL); }

  std::optional<uint64_t> ThreadsOf(pid_t pid) override {
    return ReadProcessThreads(pid);
  }

  std::optional<ProcessEnd> Reap(pid_t pid) override {
    ReapOrphans();
    int status = 0;
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == 0) return std::nullopt;
    groups_.push_back(pid);
    if (ended < 0) return ProcessEnd{std::strerror(errno)};
    if (WIFSIGNALED(status)) {
      return ProcessEnd{absl::StrCat("signal ", WTERMSIG(status), " (",
                                     strsignal(WTERMSIG(status)), ")"),
                        WTERMSIG(status) == SIGKILL};
    }
    return ProcessEnd{absl::StrCat("exit status ", WEXITSTATUS(status))};
  }

 private:
  // Sets `ours` to one end, which does not block and takes no descriptors, and
  // returns the other one.
  static absl::StatusOr<Descriptor> MakeSocket(int type, Descriptor* ours) {
    int ends[2];
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) {
      return Failed("socketpair", errno);
    }
    *ours = Descriptor(ends[0]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    RefuseDescriptors(ends[0]);
    return Descriptor(ends[1]);
  }
  static absl::Status Failed(absl::string_view what, int error) {
    return MakeError(absl::StatusCode::kInternal, "CHILD_NOT_STARTED",
                     absl::StrCat("cannot start an executor: ", what, ": ",
                                  std::strerror(error)));
  }

  // Reaps the brokers of executors that have ended. They are children of this
  // process only if it is the first process of a container.
  void ReapOrphans() {
    std::erase_if(groups_, [](pid_t group) {
      pid_t ended = 0;
      do {
        ended = waitpid(-group, nullptr, WNOHANG);
      } while (ended > 0);
      return ended < 0;
    });
  }

  absl::StatusOr<Descriptor> ListenAtAnyPort(uint16_t* port) {
    std::string host = HostOf(options_.listen);
    if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
      host = host.substr(1, host.size() - 2);
    }
    addrinfo hints = {};
    hints.ai_flags = AI_PASSIVE;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (error != 0) return CannotListen(options_.listen, gai_strerror(error));
    const absl::Cleanup free = [found] { freeaddrinfo(found); };
    // Ports in use are skipped, so a range needs no bookkeeping.
    for (int at = options_.first_port; at <= options_.last_port; ++at) {
      *port = static_cast<uint16_t>(at);
      absl::StatusOr<Descriptor> socket = ListenAtPort(*found, port, host);
      if (socket.ok() || at == options_.last_port) return socket;
    }
    return CannotListen(options_.listen, "no port");
  }

  const ProcessLauncherOptions options_;
  // The limit of open files that executors get: the one with which this process
  // started.
  std::optional<rlimit> descriptors_;
  // Groups of executors that have ended, until they have no processes.
  std::vector<pid_t> groups_;
};

}  // namespace

std::unique_ptr<Launcher> MakeProcessLauncher(ProcessLauncherOptions options) {
  return std::make_unique<ProcessLauncher>(std::move(options));
}

}  // namespace djinn::worker
