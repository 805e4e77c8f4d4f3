// djinn-worker --config=FILE
//
// Runs a worker until SIGTERM or SIGINT. See config.h for the file.
// Exit status: 0 after an orderly stop, 1 when it cannot start, 2 for a wrong
// command line or configuration.
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "common/clock.h"
#include "common/config/config_reader.h"
#include "common/log/log.h"
#include "common/random.h"
#include "gpu_worker/config.h"
#include "gpu_worker/device/cpu/cpu_device.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/worker.h"

ABSL_FLAG(std::string, config, "", "The configuration, a YAML file.");
ABSL_FLAG(bool, validate, false,
          "Check the configuration, say what is wrong, and exit.");
ABSL_FLAG(std::string, address_file, "",
          "Write the address in use here once it serves: the way to learn a "
          "port that the system chose.");
ABSL_FLAG(int, lifeline_fd, -1,
          "Stop when this inherited descriptor reaches end of file: the "
          "writing end's owner is gone.");

namespace djinn::worker {
namespace {

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const WorkerConfig& config) {
  if (config.device_kind == "fake") {
    return std::make_unique<FakeDevice>(config.device_memory);
  }
  return MakeCpuDevice(
      {.memory_bytes = config.device_memory, .threads = config.device_threads});
}

// Readers see the whole address or no file.
bool WriteAddress(const std::string& address, const std::string& path) {
  const std::string draft = path + ".draft";
  {
    std::ofstream file(draft);
    file << address << "\n";
    if (!file.flush()) return false;
  }
  return std::rename(draft.c_str(), path.c_str()) == 0;
}

// Returns why to stop.
std::string WaitForEnd(int signal_fd, int lifeline_fd) {
  pollfd watched[] = {{signal_fd, POLLIN, 0}, {lifeline_fd, POLLIN, 0}};
  for (;;) {
    if (poll(watched, 2, -1) < 0 && errno != EINTR) return "poll failed";
    if (watched[0].revents != 0) return "signal";
    if (watched[1].revents != 0) {
      char ignored[64];
      if (read(lifeline_fd, ignored, sizeof(ignored)) <= 0) return "lifeline";
    }
  }
}

// OpenMP's threads spin for milliseconds between parallel regions unless told
// otherwise, and a worker then fights the clients on its machine for cores that
// do nothing. A short spin still catches the next operator. The runtime reads
// its settings when it is loaded, so the program starts again under them;
// descriptors and the process id stay. Whoever sets the policy has the last
// word.
void RestartWithDrowsyThreads(char** argv) {
  constexpr char kPolicy[] = "OMP_WAIT_POLICY";
  if (std::getenv(kPolicy) != nullptr) return;
  setenv(kPolicy, "passive", /*overwrite=*/1);
  // Some tens of microseconds.
  setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);
  // By its own path, or the process would be called "exe".
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length > 0) {
    path[length] = '\0';
    execv(path, argv);
  }
  std::perror("djinn-worker: cannot restart with OMP_WAIT_POLICY=passive");
}

int Main() {
  log::Configure("worker", log::Level::kInfo);
  const std::string path = absl::GetFlag(FLAGS_config);
  if (path.empty()) {
    std::fprintf(stderr, "djinn-worker: --config=FILE is required\n");
    return 2;
  }
  const absl::StatusOr<WorkerConfig> config =
      ReadWorkerConfig(ConfigReader::FromFile(path));
  if (!config.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(config.status().message()).c_str());
    return 2;
  }
  if (absl::GetFlag(FLAGS_validate)) return 0;

  // Before there are threads, so that none of them takes the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A reader of our logs that went away is no reason to stop.
  std::signal(SIGPIPE, SIG_IGN);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);

  const std::string address_file = absl::GetFlag(FLAGS_address_file);
  // An earlier process' address would mislead whoever waits for ours.
  if (!address_file.empty()) std::remove(address_file.c_str());
  absl::StatusOr<std::unique_ptr<Device>> device = MakeDevice(*config);
  if (!device.ok()) {
    log::Error("no device", {{"error", device.status()}});
    return 1;
  }
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(
      *config, *std::move(device), Clock::Real(), RandomSource::Real());
  if (!worker.ok()) {
    log::Error("cannot start", {{"error", worker.status()}});
    return 1;
  }
  const std::string& address = (*worker)->address();
  log::Info("listening on " + address,
            {{"worker", config->worker_id}, {"device", config->device_kind}});
  if (!address_file.empty() && !WriteAddress(address, address_file)) {
    log::Error("cannot write the address file", {{"path", address_file}});
    return 1;
  }
  const std::string why =
      WaitForEnd(signal_fd, absl::GetFlag(FLAGS_lifeline_fd));
  log::Info("stopping", {{"why", why}});
  (*worker)->Stop();
  return 0;
}

}  // namespace
}  // namespace djinn::worker

int main(int argc, char** argv) {
  djinn::worker::RestartWithDrowsyThreads(argv);
  absl::SetProgramUsageMessage("--config=FILE [--validate]");
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    std::fprintf(stderr, "djinn-worker: takes no arguments\n");
    return 2;
  }
  return djinn::worker::Main();
}
