#include "gpu_worker/sandbox/sandbox.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/sandbox/nvidia_profile.h"
#include "gpu_worker/sandbox/seccomp_filter.h"

namespace djinn::worker {
namespace {

// Calls that are logged one by one; further ones are only counted.
constexpr uint64_t kMaxLogged = 32;

std::atomic<uint64_t> refused{0};

// PyTorch opens this file for each seed. It gets a copy of a descriptor that
// was opened before.
constexpr char kRandom[] = "/dev/urandom";
int random_file = -1;

// Opens other files for the process; null when none can be opened.
const FileBroker* files = nullptr;

// Calls with any arguments. None of them names a file, another process or an
// address of the network.
constexpr int kAllowed[] = {
    // Descriptors that are open.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_close,
    SYS_dup,
    SYS_dup3,
    SYS_lseek,
    SYS_fstat,
    SYS_ppoll,
    SYS_pselect6,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_eventfd2,
    SYS_pipe2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    // Connections that the process accepted.
    SYS_accept4,
    SYS_accept,
    SYS_recvmsg,
    SYS_recvfrom,
    SYS_recvmmsg,
    SYS_shutdown,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    // Memory.
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_mincore,
    SYS_msync,
    SYS_membarrier,
    SYS_mlock,
    SYS_munlock,
    // Threads.
    SYS_futex,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_sched_yield,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_gettid,
    SYS_getcpu,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
#ifdef SYS_rseq
    SYS_rseq,
#endif
    // Signals of the process itself.
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    // Clocks, randomness, and facts about the process.
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getpid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_uname,
    SYS_getrusage,
    SYS_times,
    SYS_getrlimit,
#if defined(__x86_64__)
    SYS_poll,
    SYS_select,
    SYS_epoll_wait,
    SYS_epoll_create,
    SYS_dup2,
    SYS_time,
    SYS_arch_prctl,
#endif
};

// Further calls where files can be opened: those with which a library is loaded
// from its descriptor, and with which a folder is listed.
constexpr int kAllowedWithFiles[] = {SYS_pread64, SYS_getdents64};

// Allows calls that tell facts about any process, if they ask about this one.
void AllowOwnFacts(const SandboxOptions& options, SeccompFilter* filter) {
  const auto own = static_cast<uint32_t>(getpid());
  for (const uint32_t pid : {0U, own}) {
    // Reads limits; sets none.
    filter->AllowIfAll(SYS_prlimit64,
                       {{0, ~0U, pid}, {2, ~0U, 0}, {2, ~0U, 0, true}});
    filter->AllowIfAll(SYS_sched_getparam, {{0, ~0U, pid}});
    filter->AllowIfAll(SYS_sched_getscheduler, {{0, ~0U, pid}});
    filter->AllowIfAll(SYS_sched_getaffinity, {{0, ~0U, pid}});
  }
  // The C library names threads by their ids, which a filter does not know. It
  // goes on where there is no such call.
  filter->Fail(SYS_sched_getaffinity, ENOSYS);
  filter->AllowIfAll(SYS_getpriority, {{0, ~0U, PRIO_PROCESS}, {1, ~0U, 0}});
  // A negative number names the clock of a process or, with these bits, of a
  // thread of this process.
  constexpr uint32_t kNegative = 1U << 31;
  constexpr uint32_t kThreadClock = 6;
  for (const int call :
       {SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep}) {
    filter->AllowIfAll(call, {{0, kNegative, 0}});
    filter->AllowIfAll(call, {{0, kNegative | 7, kNegative | kThreadClock}});
  }
  // Tells how much memory of the machine is free. On a GPU, the process can
  // read that from a file, too.
  if (options.nvidia) {
    filter->Allow(SYS_sysinfo);
  } else {
    filter->Fail(SYS_sysinfo, EPERM);
  }
}

std::vector<sock_filter> MakeFilter(const SandboxOptions& options) {
  SeccompFilter filter;
  AllowOwnFacts(options, &filter);
  // Memory of which a page stays mapped is kept as a whole, beyond what counts
  // against the limit. A GPU's driver may need such memory.
  if (!options.nvidia) {
    constexpr uint32_t kShared = MAP_SHARED | MAP_ANONYMOUS;
    filter.If(SYS_mmap, SECCOMP_RET_TRAP, {{3, kShared, kShared}});
  }
  for (const int call : kAllowed) filter.Allow(call);
  if (options.files != nullptr) {
    for (const int call : kAllowedWithFiles) filter.Allow(call);
  }
  if (options.nvidia) {
    filter.AllowIfMasked(SYS_ioctl, 1, kNvidiaCommandMask, kNvidiaCommands);
    filter.AllowIfMasked(SYS_ioctl, 1, ~0U, kUvmCommands);
  }
  // Sending may not connect: with this flag it would, from a listener that was
  // shut down.
  filter.AllowIfMasked(SYS_sendto, 3, MSG_FASTOPEN, {0});
  filter.AllowIfMasked(SYS_sendmsg, 2, MSG_FASTOPEN, {0});
  filter.AllowIfMasked(SYS_sendmmsg, 3, MSG_FASTOPEN, {0});
  // A new thread of this process, but no new process. clone3 keeps its flags in
  // memory, where a filter cannot see them; libraries fall back to clone.
  constexpr uint32_t kThread = CLONE_THREAD | CLONE_VM | CLONE_SIGHAND;
  filter.AllowIfAll(SYS_clone, {{0, kThread, kThread}});
  filter.Fail(SYS_clone3, ENOSYS);
  // abort() signals its own process.
  filter.AllowIf(SYS_tgkill, 0, {static_cast<uint32_t>(getpid())},
                 SECCOMP_RET_TRAP);
  constexpr uint32_t kSetAnonymousName = 0x53564d41;  // PR_SET_VMA
  filter.AllowIf(SYS_prctl, 0, {PR_SET_NAME, PR_GET_NAME, kSetAnonymousName},
                 SECCOMP_RET_TRAP);
  filter.AllowIf(SYS_ioctl, 1, {FIONREAD}, SECCOMP_RET_ERRNO | ENOTTY);
  // No other process shares the flags of an open file with this one. Should one
  // do so nevertheless, this one cannot make it wait.
  filter.AllowIfAll(SYS_fcntl,
                    {{1, ~0U, F_SETFL}, {2, O_NONBLOCK, O_NONBLOCK}});
  // Other commands make the kernel signal any process of this user.
  filter.AllowIf(SYS_fcntl, 1,
                 {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL},
                 SECCOMP_RET_TRAP);
  // Places the calling thread, not those of other processes.
  filter.AllowIf(SYS_sched_setaffinity, 0, {0}, SECCOMP_RET_ERRNO | EPERM);
  // The C library asks about open descriptors by this call, which can also ask
  // about paths. Where files can be opened, the handler tells them apart.
  if (options.files == nullptr) filter.Fail(SYS_newfstatat, EPERM);
  // Libraries place memory on nodes, and go on where that fails.
  filter.Fail(SYS_mbind, ENOSYS);
  filter.Fail(SYS_set_mempolicy, ENOSYS);
  filter.Fail(SYS_get_mempolicy, ENOSYS);
  return filter.Finish();
}

// Returns an argument of the trapped call, from 0.
unsigned long long ArgumentOf(const ucontext_t& machine, int index) {
#if defined(__x86_64__)
  constexpr int kRegisters[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10};
  return static_cast<unsigned long long>(
      machine.uc_mcontext.gregs[kRegisters[index]]);
#elif defined(__aarch64__)
  return machine.uc_mcontext.regs[index];
#else
  return 0;
#endif
}

// Returns the path that the trapped call names; null for calls that name none.
// Like the kernel, it trusts the process' own pointer no further than the
// process itself would.
const char* NamedPath(int call, const ucontext_t& machine) {
#if defined(__x86_64__)
  if (call == SYS_open) {
    return reinterpret_cast<const char*>(ArgumentOf(machine, 0));
  }
#endif
  if (call != SYS_openat && call != SYS_newfstatat) return nullptr;
  return reinterpret_cast<const char*>(ArgumentOf(machine, 1));
}

void SetResult(long result, ucontext_t* machine) {
#if defined(__x86_64__)
  machine->uc_mcontext.gregs[REG_RAX] = result;
#elif defined(__aarch64__)
  machine->uc_mcontext.regs[0] = static_cast<unsigned long long>(result);
#else
  (void)result;
  (void)machine;
#endif
}

// Writes the last `digits` digits of the number at `out`.
void PutDigits(unsigned value, int digits, char* out) {
  while (digits > 0) {
    out[--digits] = static_cast<char>('0' + value % 10);
    value /= 10;
  }
}

// Writes the time over the digits of `stamp`, which has the form of all lines
// of the log. Safe in a signal handler, where the functions of calendars are
// not.
void PutTime(char* stamp) {
  using std::chrono::floor;
  const auto now =
      floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto day = floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(now - day);
  PutDigits(static_cast<unsigned>(static_cast<int>(date.year())), 4, stamp);
  PutDigits(static_cast<unsigned>(date.month()), 2, stamp + 5);
  PutDigits(static_cast<unsigned>(date.day()), 2, stamp + 8);
  PutDigits(static_cast<unsigned>(time.hours().count()), 2, stamp + 11);
  PutDigits(static_cast<unsigned>(time.minutes().count()), 2, stamp + 14);
  PutDigits(static_cast<unsigned>(time.seconds().count()), 2, stamp + 17);
  PutDigits(static_cast<unsigned>(time.subseconds().count()), 3, stamp + 20);
}

// Writes a line to the log. Safe in a signal handler.
void LogRefused(int call, const char* path) {
  char line[224] =
      "ts=0000-00-00T00:00:00.000Z level=warning role=executor "
      "msg=\"sandbox refused a system call\" number=";
  PutTime(line + std::strlen("ts="));
  size_t length = std::strlen(line);
  char digits[12];
  size_t count = 0;
  for (unsigned left = static_cast<unsigned>(call); count == 0 || left > 0;
       left /= 10) {
    digits[count++] = static_cast<char>('0' + left % 10);
  }
  while (count > 0) line[length++] = digits[--count];
  if (path != nullptr) {
    constexpr char kKey[] = " path=";
    for (const char* key = kKey; *key != 0; ++key) line[length++] = *key;
    // Other characters could imitate further fields or lines.
    for (; *path > ' ' && *path <= '~' && *path != '"' &&
           length < sizeof(line) - 1;
         ++path) {
      line[length++] = *path;
    }
  }
  line[length++] = '\n';
  // Nothing is left to do where the log cannot be written.
  (void)!write(STDERR_FILENO, line, length);
}

// Asks about a file as newfstatat does, by its descriptor. Returns 0 or a
// negative error number.
long StatByDescriptor(const char* path, const ucontext_t& machine) {
  void* const result = reinterpret_cast<void*>(ArgumentOf(machine, 2));
  if (*path == '\0' && (ArgumentOf(machine, 3) & AT_EMPTY_PATH) != 0) {
    const int file = static_cast<int>(ArgumentOf(machine, 0));
    return syscall(SYS_fstat, file, result) == 0 ? 0 : -errno;
  }
  const int file = files->Open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return file;
  const long status = syscall(SYS_fstat, file, result) == 0 ? 0 : -errno;
  close(file);
  return status;
}

// Returns what the trapped call, which names a path, gives in the sandbox. A
// file that the broker refuses gives EACCES, which the loader takes for one
// that is not for it.
long ResultOfNamed(int call, const char* path, const ucontext_t& machine) {
  if (call == SYS_newfstatat) {
    return files == nullptr ? -EPERM : StatByDescriptor(path, machine);
  }
  if (std::strcmp(path, kRandom) == 0) {
    const int copy = fcntl(random_file, F_DUPFD_CLOEXEC, 0);
    return copy < 0 ? -errno : copy;
  }
  if (files == nullptr) return -EPERM;
  return files->Open(
      path, static_cast<int>(ArgumentOf(machine, call == SYS_openat ? 2 : 1)));
}

// Gives the result of a call that the filter trapped.
void OnRefused(int /*signal*/, siginfo_t* info, void* context) {
  constexpr int kBySeccomp = 1;  // SYS_SECCOMP, which the C library leaves out
  if (info->si_code != kBySeccomp) return;
  const int error_before = errno;
  auto* const machine = static_cast<ucontext_t*>(context);
  const int call = info->si_syscall;
  const char* const path = NamedPath(call, *machine);
  const long result =
      path == nullptr ? -EPERM : ResultOfNamed(call, path, *machine);
  if ((result == -EPERM || result == -EACCES) &&
      refused.fetch_add(1, std::memory_order_relaxed) < kMaxLogged) {
    LogRefused(call, path);
  }
  SetResult(result, machine);
  errno = error_before;
}

absl::Status SystemError(const char* what) {
  return MakeError(absl::StatusCode::kInternal, "NO_SANDBOX",
                   absl::StrCat(what, ": ", std::strerror(errno)));
}

// Limits what the process may have to what it has and `added` bytes. `field` is
// the number of what the limit counts in /proc/self/statm, from 0.
absl::Status LimitMemory(__rlimit_resource resource, int field,
                         uint64_t added) {
  uint64_t pages = 0;
  std::ifstream statm("/proc/self/statm");
  for (int i = 0; i <= field; ++i) statm >> pages;
  if (!statm || pages == 0) return SystemError("cannot read /proc/self/statm");
  const rlim_t most =
      pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) + added;
  rlimit limit = {most, most};
  if (setrlimit(resource, &limit) != 0) {
    return SystemError("a limit of memory");
  }
  return absl::OkStatus();
}

// Gives up the rights of an administrator, which a worker that runs as root has
// and its executors would inherit. A GPU's driver, for one, lets administrators
// do more. Keeps the rights to reach files of other users if the process has
// them, because libraries of operators may need them until the sandbox closes.
// CAP_DAC_OVERRIDE is a right to write, too; the sandbox opens no file to write
// but a GPU's device files. Makes no call to the kernel when there is nothing
// to give up: a service's filter may kill who sets capabilities.
absl::Status DropCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return SystemError("capget");
  constexpr uint32_t kKept =
      (1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH);
  const uint32_t given_up = ((sets[0].effective | sets[0].permitted) & ~kKept) |
                            sets[0].inheritable | sets[1].effective |
                            sets[1].permitted | sets[1].inheritable;
  if (given_up == 0) return absl::OkStatus();
  sets[0].effective &= kKept;
  sets[0].permitted &= kKept;
  sets[0].inheritable = 0;
  sets[1] = {};
  if (syscall(SYS_capset, &header, sets) != 0) return SystemError("capset");
  return absl::OkStatus();
}

}  // namespace

absl::Status PrepareSandbox(int last_fd) {
  if (close_range(static_cast<unsigned>(last_fd) + 1, ~0U, 0) != 0) {
    return SystemError("close_range");
  }
  // The supervisor is preferred, but works without. Later, this file belongs to
  // the administrator.
  std::ofstream("/proc/self/oom_score_adj") << 500 << std::flush;
  const rlimit none = {0, 0};
  if (setrlimit(RLIMIT_CORE, &none) != 0) return SystemError("RLIMIT_CORE");
  DJINN_RETURN_IF_ERROR(DropCapabilities());
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return SystemError("PR_SET_DUMPABLE");
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return SystemError("PR_SET_PDEATHSIG");
  }
  return absl::OkStatus();
}

absl::Status EnterSandbox(const SandboxOptions& options) {
  if (SeccompFilter::kArchitecture == 0) {
    return MakeError(absl::StatusCode::kUnimplemented, "NO_SANDBOX",
                     "no filter of system calls for this architecture");
  }
  random_file = open(kRandom, O_RDONLY | O_CLOEXEC);
  if (random_file < 0) return SystemError(kRandom);
  struct sigaction action = {};
  action.sa_sigaction = OnRefused;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return SystemError("SIGSYS");
  if (options.added_address_space > 0) {
    DJINN_RETURN_IF_ERROR(
        LimitMemory(RLIMIT_AS, 0, options.added_address_space));
  }
  if (options.added_data > 0) {
    DJINN_RETURN_IF_ERROR(LimitMemory(RLIMIT_DATA, 5, options.added_data));
  }
  files = options.files;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return SystemError("PR_SET_NO_NEW_PRIVS");
  }
  std::vector<sock_filter> code = MakeFilter(options);
  const sock_fprog program = {static_cast<unsigned short>(code.size()),
                              code.data()};
  // Returns the id of a thread that could not be synchronized.
  const long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                              SECCOMP_FILTER_FLAG_TSYNC, &program);
  if (result == 0) return absl::OkStatus();
  if (result > 0) {
    return MakeError(
        absl::StatusCode::kInternal, "NO_SANDBOX",
        absl::StrCat("thread ", result, " already has another seccomp filter"));
  }
  return MakeError(absl::StatusCode::kUnimplemented, "NO_SANDBOX",
                   absl::StrCat("seccomp: ", std::strerror(errno)));
}

uint64_t RefusedSystemCalls() {
  return refused.load(std::memory_order_relaxed);
}

}  // namespace djinn::worker
