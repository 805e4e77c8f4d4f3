#include "common/daemon/daemon.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/version.h"
#include "common/config/effective_config.h"
#include "common/daemon/service_manager.h"
#include "common/log/log.h"

ABSL_FLAG(std::string, config, "", "The configuration, a YAML file.");
ABSL_FLAG(bool, validate, false,
          "Check the configuration, say what is wrong, and exit.");
ABSL_FLAG(bool, print_config, false,
          "Print the configuration with the source of each value, and exit.");
ABSL_FLAG(std::string, address_file, "",
          "Write the address in use here once it serves: the way to learn a "
          "port that the system chose.");
ABSL_FLAG(std::string, monitoring_address_file, "",
          "Write the address of the monitoring port here once it serves.");
ABSL_FLAG(
    int, lifeline_fd, -1,
    "Stop when this inherited descriptor reaches end of file: the writing "
    "end's owner is gone.");

namespace djinn {
namespace {

// A peer that freezes during a write can hold a call, and every thread that
// waits for its end, without a limit. Supervisors kill after 30 seconds.
constexpr absl::Duration kStopTimeout = absl::Seconds(20);
constexpr char kTerminated[] = "SIGTERM";
constexpr int kFailure = 1;

// Writes the file so that readers see the whole address or no file.
bool WriteAddress(const std::string& address, const std::string& path) {
  const std::string draft = path + ".draft";
  {
    std::ofstream file(draft);
    file << address << "\n";
    if (!file.flush()) return false;
  }
  return std::rename(draft.c_str(), path.c_str()) == 0;
}

// Writes the address to the file that the command line names, if any. Returns
// false when that failed.
bool Publish(const std::string& address, const std::string& path) {
  if (path.empty() || WriteAddress(address, path)) return true;
  log::Error("cannot write the address file", {{"path", path}});
  return false;
}

// Has flags' words joined by "_", as Abseil wants, also where they were joined
// by "-".
void JoinFlagNames(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--", 2) != 0) continue;
    for (char* at = argv[i] + 2; *at != '\0' && *at != '='; ++at) {
      if (*at == '-') *at = '_';
    }
  }
}

// Blocks the signals before there are threads, so that no thread receives them.
int TakeSignals(bool hangup) {
  sigset_t signals;
  sigemptyset(&signals);
  if (hangup) sigaddset(&signals, SIGHUP);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // The loss of the logs' reader must not end the process.
  std::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

// Where a process learns that it must end.
struct Ends {
  int signal_fd;
  // -1 if there is none.
  int lifeline_fd;
};

// Waits for the end and returns its reason, such as "SIGTERM", or an empty text
// when the time is over or `over_fd` can be read.
std::string WaitForEnd(const Ends& ends, const std::function<void()>& reload,
                       absl::Duration timeout, int over_fd = -1) {
  const absl::Time until = absl::Now() + timeout;
  pollfd watched[] = {{over_fd, POLLIN, 0},
                      {ends.signal_fd, POLLIN, 0},
                      {ends.lifeline_fd, POLLIN, 0}};
  for (;;) {
    const absl::Duration left =
        std::max(until - absl::Now(), absl::ZeroDuration());
    const int milliseconds = timeout == absl::InfiniteDuration()
                                 ? -1
                                 : static_cast<int>(absl::ToInt64Milliseconds(
                                       left + absl::Microseconds(999)));
    const int ready = poll(watched, 3, milliseconds);
    if (ready == 0) return "";
    if (ready < 0) {
      if (errno == EINTR) continue;
      return "poll failed";
    }
    if (watched[0].revents != 0) return "";
    if (watched[1].revents != 0) {
      signalfd_siginfo info{};
      if (read(ends.signal_fd, &info, sizeof(info)) != sizeof(info)) {
        return "signal";
      }
      if (info.ssi_signo == SIGTERM) return kTerminated;
      if (info.ssi_signo != SIGHUP) return "SIGINT";
      reload();
    }
    if (watched[2].revents != 0) {
      char ignored[64];
      if (read(ends.lifeline_fd, ignored, sizeof(ignored)) <= 0) {
        return "lifeline";
      }
    }
  }
}

// Ends the process at once when it must end while it starts: a start may take
// minutes, and nobody is served yet who could be told.
class StartWatch {
 public:
  StartWatch(const Ends& ends, const Daemon& daemon)
      : over_(eventfd(0, EFD_CLOEXEC)), thread_([this, ends, &daemon] {
          const std::string why = WaitForEnd(
              ends, [this] { reload_ = true; }, absl::InfiniteDuration(),
              over_);
          if (why.empty()) return;
          log::Info("stopping during the start", {{"why", why}});
          std::_Exit(daemon.failed && daemon.failed() ? kFailure : 0);
        }) {}

  // Ends the watch. Returns whether SIGHUP asked for a reload meanwhile.
  bool Finish() {
    eventfd_write(over_, 1);
    thread_.join();
    close(over_);
    return reload_;
  }

 private:
  const int over_;
  bool reload_ = false;
  std::thread thread_;
};

}  // namespace

std::string ConfigPath() { return absl::GetFlag(FLAGS_config); }

int RunDaemon(const Daemon& daemon, int argc, char** argv) {
  // Debian builds Abseil so that it searches for cycles at every lock, also of
  // gRPC.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const auto refuse = [](absl::string_view why) {
    std::fprintf(stderr, "%s\n", std::string(why).c_str());
    return 2;
  };
  absl::SetProgramUsageMessage("--config=FILE [--validate|--print-config]");
  const std::string program = absl::StrCat("djinn-", daemon.role);
  absl::FlagsUsageConfig usage;
  usage.version_string = [&] {
    return absl::StrCat(program, " ", kVersion, "\n");
  };
  usage.contains_help_flags = [](absl::string_view file) {
    return absl::StrContains(file, "daemon");
  };
  absl::SetFlagsUsageConfig(usage);
  JoinFlagNames(argc, argv);
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    return refuse(absl::StrCat(program, ": takes no arguments"));
  }
  log::Configure(daemon.role, log::Level::kInfo);
  const std::string path = absl::GetFlag(FLAGS_config);
  if (path.empty()) {
    return refuse(absl::StrCat(program, ": --config=FILE is required"));
  }
  if (absl::GetFlag(FLAGS_print_config)) {
    const absl::StatusOr<std::string> shown =
        EffectiveConfig(path, daemon.configure);
    if (!shown.ok()) return refuse(shown.status().message());
    std::fputs(shown->c_str(), stdout);
    return 0;
  }
  const absl::Status configured =
      daemon.configure(ConfigReader::FromFile(path));
  if (!configured.ok()) return refuse(configured.message());
  if (absl::GetFlag(FLAGS_validate)) return 0;

  const int signal_fd = TakeSignals(daemon.reload != nullptr);
  const std::string address_file = absl::GetFlag(FLAGS_address_file);
  const std::string monitoring_file =
      absl::GetFlag(FLAGS_monitoring_address_file);
  // The address of an earlier process would mislead programs that wait for this
  // one's.
  for (const std::string& file : {address_file, monitoring_file}) {
    if (!file.empty()) std::remove(file.c_str());
  }
  const Ends ends = {signal_fd, absl::GetFlag(FLAGS_lifeline_fd)};
  StartWatch watch(ends, daemon);
  const absl::StatusOr<std::string> address = daemon.start();
  const bool reload = watch.Finish();
  if (!address.ok()) {
    log::Error("cannot start", {{"reason", ErrorReason(address.status())},
                                {"error", address.status()}});
    return kFailure;
  }
  if (reload) daemon.reload();
  log::Info("listening on " + *address);
  const std::string monitoring = daemon.monitoring_address();
  if (!monitoring.empty()) log::Info("monitoring on " + monitoring);
  if (!Publish(monitoring, monitoring_file) ||
      !Publish(*address, address_file)) {
    return kFailure;
  }
  if (const absl::Status told = NotifyReady(); !told.ok()) {
    log::Warning("the service manager does not learn that this process serves",
                 {{"error", told}});
  }
  const auto wait = [&](absl::Duration timeout) {
    return WaitForEnd(ends, daemon.reload, timeout);
  };
  const std::string why = wait(absl::InfiniteDuration());
  log::Info("stopping", {{"why", why}});
  if (why == kTerminated && daemon.drain) {
    daemon.drain(
        [&](absl::Duration timeout) { return !wait(timeout).empty(); });
  }
  std::thread([] {
    absl::SleepFor(kStopTimeout);
    log::Error("did not stop in time", {{"timeout", kStopTimeout}});
    std::_Exit(kFailure);
  }).detach();
  daemon.stop();
  return daemon.failed && daemon.failed() ? kFailure : 0;
}

}  // namespace djinn
