// Tests the sandbox in children of this process, because nothing leaves it.
#include "gpu_worker/sandbox/sandbox.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gpu_worker/sandbox/sandbox_child.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Runs `act` in the sandbox of a child process, and returns the wait status.
int InSandbox(const std::function<int()>& act, uint64_t address_space = 0) {
  return InChild([&] {
    if (!PrepareSandbox(STDERR_FILENO).ok() ||
        !EnterSandbox({.added_address_space = address_space}).ok()) {
      return kNoSandbox;
    }
    return act();
  });
}

struct Escape {
  const char* name;
  // Returns a system call's result: negative with EPERM when refused, or with
  // EACCES when the broker refuses the file.
  std::function<long()> attempt;
  bool opens_file = false;
};

class SandboxEscapeTest : public testing::TestWithParam<Escape> {};

// Returns 0 if the escape fails with the error and is counted.
int Attempt(const Escape& escape, int error) {
  const uint64_t before = RefusedSystemCalls();
  errno = 0;
  if (escape.attempt() >= 0 || errno != error) return kEscaped;
  return RefusedSystemCalls() == before + 1 ? 0 : kNotCounted;
}

TEST_P(SandboxEscapeTest, IsRefusedAndCounted) {
  const int status = InSandbox([] { return Attempt(GetParam(), EPERM); });
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST_P(SandboxEscapeTest, IsRefusedAndCountedOnGpuToo) {
  const FakeGpu gpu;
  const int status = InGpuSandbox(gpu, [] {
    return Attempt(GetParam(), GetParam().opens_file ? EACCES : EPERM);
  });
  if (ExitOf(status) == kNoLandlock) {
    GTEST_SKIP() << "this machine's kernel has no Landlock";
  }
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

const pid_t kParent = getpid();

// Returns a socket that listens on loopback, and sets `address` to its address.
int Listen(sockaddr_in* address) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(*address);
  if (bind(listener, reinterpret_cast<sockaddr*>(address), size) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(address), &size) != 0) {
    std::abort();
  }
  return listener;
}

// The address of a listener outside of the sandbox. Children also inherit a
// listener of their own, in place of the standard input.
const sockaddr_in kOther = [] {
  sockaddr_in address;
  Listen(&address);
  sockaddr_in own;
  const int listener = Listen(&own);
  dup2(listener, STDIN_FILENO);
  close(listener);
  return address;
}();

// Shuts the inherited listener down, which then can connect by sending, and
// names the other listener and one byte.
class SendingConnection {
 public:
  SendingConnection() {
    shutdown(STDIN_FILENO, SHUT_RDWR);
    message_.msg_name = &other_;
    message_.msg_namelen = sizeof(other_);
    message_.msg_iov = &part_;
    message_.msg_iovlen = 1;
  }
  long SendTo(int flags) {
    return sendto(STDIN_FILENO, &byte_, 1, flags,
                  reinterpret_cast<const sockaddr*>(&other_), sizeof(other_));
  }
  long SendMessage(int flags) {
    return sendmsg(STDIN_FILENO, &message_, flags);
  }
  long SendMessages(int flags) {
    mmsghdr messages = {message_, 0};
    return sendmmsg(STDIN_FILENO, &messages, 1, flags);
  }

 private:
  char byte_ = 'x';
  iovec part_ = {&byte_, 1};
  sockaddr_in other_ = kOther;
  msghdr message_ = {};
};

INSTANTIATE_TEST_SUITE_P(
    All, SandboxEscapeTest,
    testing::Values(
        Escape{"OpenFile", [] { return open("/etc/passwd", O_RDONLY); }, true},
        Escape{"CreateFile",
               [] { return open("/tmp/escaped", O_CREAT | O_WRONLY, 0600); },
               true},
        Escape{"OpenMemoryOfOther",
               [] {
                 return open(
                     ("/proc/" + std::to_string(kParent) + "/mem").c_str(),
                     O_RDWR);
               },
               true},
        Escape{"ReadMemoryOfOther",
               [] {
                 char byte = 0;
                 iovec here = {&byte, 1};
                 iovec there = {&byte, 1};
                 return process_vm_readv(kParent, &here, 1, &there, 1, 0);
               }},
        Escape{"ListFolder",
               [] { return open("/proc", O_RDONLY | O_DIRECTORY); }, true},
        Escape{"RemoveFile", [] { return unlink("/tmp/escaped"); }},
        Escape{"ReadLink",
               [] {
                 char path[64];
                 return readlink("/proc/self/exe", path, sizeof(path));
               }},
        Escape{"InternetSocket",
               [] { return socket(AF_INET, SOCK_STREAM, 0); }},
        Escape{"UnixSocket", [] { return socket(AF_UNIX, SOCK_STREAM, 0); }},
        Escape{"Connect",
               [] {
                 sockaddr_in address = {};
                 address.sin_family = AF_INET;
                 return connect(STDERR_FILENO,
                                reinterpret_cast<sockaddr*>(&address),
                                sizeof(address));
               }},
        Escape{"ConnectBySending",
               [] { return SendingConnection().SendTo(MSG_FASTOPEN); }},
        Escape{"ConnectBySendingAMessage",
               [] {
                 return SendingConnection().SendMessage(MSG_FASTOPEN |
                                                        MSG_NOSIGNAL);
               }},
        Escape{"ConnectBySendingMessages",
               [] { return SendingConnection().SendMessages(MSG_FASTOPEN); }},
        Escape{"Trace",
               [] { return ptrace(PTRACE_ATTACH, kParent, nullptr, nullptr); }},
        Escape{"Signal", [] { return kill(kParent, 0); }},
        Escape{"SignalThreadOfOther",
               [] { return syscall(SYS_tgkill, kParent, kParent, 0); }},
        Escape{"OwnerOfDescriptor",
               [] { return fcntl(STDERR_FILENO, F_SETOWN, kParent); }},
        Escape{"MakeMemoryFile",
               [] { return memfd_create("memory", MFD_CLOEXEC); }},
        Escape{"ResizeInheritedFile",
               [] { return ftruncate(STDERR_FILENO, 0); }},
        Escape{"MakeDescriptorBlock",
               [] { return fcntl(STDERR_FILENO, F_SETFL, 0); }},
        Escape{"LimitsOfOther",
               [] {
                 rlimit limit;
                 return prlimit(kParent, RLIMIT_AS, nullptr, &limit);
               }},
        Escape{"SchedulerOfOther", [] { return sched_getscheduler(kParent); }},
        Escape{"PriorityOfOther",
               [] { return syscall(SYS_getpriority, PRIO_PROCESS, kParent); }},
        Escape{"PrioritiesOfUser",
               [] { return syscall(SYS_getpriority, PRIO_USER, 0); }},
        Escape{"ClockOfOther",
               [] {
                 timespec time;
                 const auto clock = static_cast<clockid_t>(
                     ~static_cast<unsigned>(kParent) << 3 | 2);
                 return syscall(SYS_clock_gettime, clock, &time);
               }},
        Escape{"Fork", [] { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }},
        Escape{"Execute",
               [] {
                 char* const none[] = {nullptr};
                 return execve("/bin/true", none, none);
               }},
        Escape{"DumpableAgain", [] { return prctl(PR_SET_DUMPABLE, 1); }},
        Escape{"RaiseLimit",
               [] {
                 const rlimit limit = {0, 0};
                 return setrlimit(RLIMIT_CORE, &limit);
               }},
        Escape{"AnotherUser", [] { return setuid(0); }},
        Escape{"LoadKernelCode",
               [] { return syscall(SYS_bpf, 0, nullptr, 0); }},
        Escape{"AsynchronousRing",
               [] { return syscall(SYS_io_uring_setup, 1, nullptr); }}),
    [](const testing::TestParamInfo<Escape>& info) {
      return std::string(info.param.name);
    });

TEST(SandboxTest, RefusalIsALineOfTheLogWithItsTime) {
  const absl::Time before = absl::Now();
  testing::internal::CaptureStderr();
  const int status = InSandbox(
      [] { return open("/etc/passwd", O_RDONLY) < 0 ? 0 : kEscaped; });
  const std::string line = testing::internal::GetCapturedStderr();
  const absl::Time after = absl::Now();
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
  std::smatch parts;
  ASSERT_TRUE(std::regex_match(
      line, parts,
      std::regex("ts=(\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z) "
                 "level=warning role=executor msg=\"sandbox refused a system "
                 "call\" number=\\d+ path=/etc/passwd\n")))
      << line;
  absl::Time said;
  std::string error;
  ASSERT_TRUE(
      absl::ParseTime(absl::RFC3339_full, parts[1].str(), &said, &error))
      << error;
  EXPECT_GE(said, before - absl::Milliseconds(1));
  EXPECT_LE(said, after);
}

TEST(SandboxTest, ComputingGoesOn) {
  const int status = InSandbox([] {
    std::vector<double> sums(4);
    std::vector<std::thread> threads;
    for (double& sum : sums) {
      threads.emplace_back([&sum] {
        std::vector<double> values(1 << 20, 1.5);
        for (const double value : values) sum += value;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return sums[3] == 1.5 * (1 << 20) && RefusedSystemCalls() == 0 ? 0 : 2;
  });
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(SandboxTest, FactsAboutTheProcessItselfCanBeRead) {
  const int status = InSandbox([] {
    cpu_set_t processors;
    sched_param parameters;
    rlimit limit;
    timespec time;
    clockid_t own_clock;
    for (const pid_t own : {0, getpid()}) {
      if (sched_getaffinity(own, sizeof(processors), &processors) != 0) {
        return 1;
      }
      if (sched_getscheduler(own) < 0) return 2;
      if (sched_getparam(own, &parameters) != 0) return 3;
      if (prlimit(own, RLIMIT_NOFILE, nullptr, &limit) != 0) return 4;
    }
    errno = 0;
    if (getpriority(PRIO_PROCESS, 0) < 0 && errno != 0) return 5;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return 6;
    if (pthread_getcpuclockid(pthread_self(), &own_clock) != 0 ||
        clock_gettime(own_clock, &time) != 0) {
      return 7;
    }
    return RefusedSystemCalls() == 0 ? 0 : kNotCounted;
  });
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(SandboxTest, FactsAboutTheMachineAndOtherProcessesCannotBeRead) {
  const int status = InSandbox([] {
    cpu_set_t processors;
    if (sched_getaffinity(kParent, sizeof(processors), &processors) == 0 ||
        errno != ENOSYS) {
      return 1;
    }
    struct sysinfo facts;
    return sysinfo(&facts) != 0 && errno == EPERM ? 0 : 2;
  });
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(SandboxTest, SendingOnAConnectionGoesOn) {
  const int status = InChild([] {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return kNoSandbox;
    dup2(ends[0], STDIN_FILENO);
    if (!PrepareSandbox(STDERR_FILENO).ok() || !EnterSandbox({}).ok()) {
      return kNoSandbox;
    }
    char byte = 'x';
    iovec part = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    // The other end is closed, so the kernel refuses, not the sandbox.
    const auto is_broken = [](long result) {
      return result < 0 && errno == EPIPE;
    };
    mmsghdr messages = {message, 0};
    if (!is_broken(send(STDIN_FILENO, &byte, 1, MSG_NOSIGNAL))) return 1;
    if (!is_broken(sendmsg(STDIN_FILENO, &message, MSG_NOSIGNAL))) return 2;
    if (!is_broken(sendmmsg(STDIN_FILENO, &messages, 1, MSG_NOSIGNAL))) {
      return 3;
    }
    return RefusedSystemCalls() == 0 ? 0 : 4;
  });
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(SandboxTest, RandomnessCanBeOpenedAndOnlyRead) {
  const int status = InSandbox([] {
    const int file = open("/dev/urandom", O_RDWR);
    char bytes[8];
    if (file < 0 || read(file, bytes, sizeof(bytes)) != sizeof(bytes)) return 1;
    if (write(file, bytes, sizeof(bytes)) >= 0) return 2;
    if (open("/dev/urandom/../random", O_RDONLY) >= 0) return 3;
    return RefusedSystemCalls() == 1 ? 0 : kNotCounted;
  });
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(SandboxTest, RightsOfAnAdministratorAreGivenUp) {
  const int prepared = InChild([] {
    if (!PrepareSandbox(STDERR_FILENO).ok()) return kNoSandbox;
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
    if (syscall(SYS_capget, &header, sets) != 0) return kNoSandbox;
    constexpr uint32_t kFiles =
        (1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH);
    return (sets[0].permitted & ~kFiles) == 0 && sets[1].permitted == 0
               ? 0
               : kEscaped;
  });
  EXPECT_EQ(ExitOf(prepared), 0) << "wait status " << prepared;
}

// As a service's filter does, which refuses all that only administrators need.
TEST(SandboxTest, AProcessWithoutRightsDoesNotSetThem) {
  const auto with_filter = [](const std::function<int()>& act) {
    return InChild([&] {
      __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
      if (syscall(SYS_capset, &header, none) != 0 ||
          !SetResultOfCall(SYS_capset, SECCOMP_RET_KILL_PROCESS)) {
        return kNoSandbox;
      }
      return act();
    });
  };
  const int prepared = with_filter(
      [] { return PrepareSandbox(STDERR_FILENO).ok() ? 0 : kNoSandbox; });
  EXPECT_EQ(ExitOf(prepared), 0) << "wait status " << prepared;
  const int set = with_filter([] {
    syscall(SYS_capset, nullptr, nullptr);
    return kEscaped;
  });
  EXPECT_TRUE(WIFSIGNALED(set) && WTERMSIG(set) == SIGSYS) << set;
}

TEST(SandboxTest, ThreadsOfBeforeAreInItToo) {
  const pid_t child = fork();
  if (child == 0) {
    if (!PrepareSandbox(STDERR_FILENO).ok()) _exit(kNoSandbox);
    int pipe_fds[2];
    if (pipe(pipe_fds) != 0) _exit(kNoSandbox);
    int result = kEscaped;
    std::thread early([&] {
      char go = 0;
      if (read(pipe_fds[0], &go, 1) != 1) return;
      errno = 0;
      if (open("/etc/passwd", O_RDONLY) < 0 && errno == EPERM) result = 0;
    });
    if (!EnterSandbox({}).ok()) _exit(kNoSandbox);
    if (write(pipe_fds[1], "g", 1) != 1) _exit(kNoSandbox);
    early.join();
    _exit(result);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(SandboxTest, AllocationBeyondAddressSpaceFails) {
  const int status = InSandbox(
      [] {
        void* const memory = mmap(nullptr, 512 << 20, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED && errno == ENOMEM ? 0 : kEscaped;
      },
      256 << 20);
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

// One page that stays mapped would keep all of it.
TEST(SandboxTest, MemoryThatItsMappingsDoNotCountIsRefused) {
  const int status = InSandbox([] {
    void* const memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED && errno == EPERM ? 0 : kEscaped;
  });
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(SandboxTest, DescriptorsAboveTheLastAreClosed) {
  // The sandbox opens a file of its own, which gets the lowest number.
  constexpr int kHigh = 50;
  const int lowest = open("/dev/null", O_RDONLY);
  const int open_before = fcntl(lowest, F_DUPFD, kHigh);
  ASSERT_GE(open_before, kHigh);
  const int status = InSandbox([&] {
    char byte = 0;
    return read(open_before, &byte, 1) < 0 && errno == EBADF ? 0 : kEscaped;
  });
  close(open_before);
  close(lowest);
  EXPECT_EQ(ExitOf(status), 0) << "wait status " << status;
}

TEST(SandboxTest, AbortStillEndsTheProcess) {
  const int status = InSandbox([] {
    std::abort();
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

TEST(SandboxTest, CallsOfOtherInterfacesEndTheProcess) {
#if defined(__x86_64__)
  const int status = InSandbox([] {
    syscall(0x40000000 | SYS_getpid);
    return kEscaped;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
#else
  GTEST_SKIP() << "x86-64 only";
#endif
}

}  // namespace
}  // namespace djinn::worker
