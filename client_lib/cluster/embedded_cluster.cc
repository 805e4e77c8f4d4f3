#include "client_lib/cluster/embedded_cluster.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client_lib/session/model/wait.h"
#include "client_lib/transport/grpc_admin_probe.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"

namespace djinn {
namespace {

namespace fs = std::filesystem;

// A Unix socket's path has at most 107 characters, and the part below the base
// takes up to 50.
constexpr size_t kMaxBaseLength = 56;
constexpr char kFolderPrefix[] = "djinn-embedded-";
constexpr char kLockFile[] = "lock";
// A program's own cluster has practically no limit on sessions.
constexpr int kMaxSessions = 65536;
constexpr int kMaxWorkers = 64;
constexpr absl::Duration kStopGrace = absl::Seconds(5);
constexpr absl::Duration kProbeInterval = absl::Milliseconds(20);
constexpr absl::Duration kProbeTimeout = absl::Seconds(2);

absl::Status SystemError(absl::string_view what) {
  return MakeError(absl::StatusCode::kInternal, "CANNOT_START",
                   absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status CheckRuns(ChildProcess& child, absl::string_view name) {
  if (child.Running()) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInternal, "CHILD_ENDED",
      absl::StrCat(name, " ", child.DescribeEnd(), ":\n", child.LogTail()));
}

void RemoveFolder(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) {
    log::Warning("a cluster's folder was left behind",
                 {{"folder", folder.string()}, {"error", error.message()}});
  }
}

// Removes folders that belong to this user and that no process has locked,
// because their cluster's process was killed.
void RemoveAbandonedFolders(const fs::path& base) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, kFolderPrefix)) continue;
    struct stat status;
    if (lstat(entry.path().c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != geteuid()) {
      continue;
    }
    const int lock =
        open((entry.path() / kLockFile).c_str(), O_RDONLY | O_CLOEXEC);
    if (lock < 0) continue;  // another process is making it
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) RemoveFolder(entry.path());
    close(lock);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterProcesses>> ClusterProcesses::Start(
    const ClusterOptions& options) {
  if (options.workers < 1 || options.workers > kMaxWorkers) {
    return MakeError(absl::StatusCode::kInvalidArgument, "WORKER_COUNT",
                     absl::StrCat("a cluster has 1 to ", kMaxWorkers,
                                  " workers, not ", options.workers));
  }
  DJINN_ASSIGN_OR_RETURN(ClusterPrograms programs, FindClusterPrograms());
  std::unique_ptr<ClusterProcesses> cluster(
      new ClusterProcesses(options, std::move(programs)));
  DJINN_RETURN_IF_ERROR(cluster->Prepare());
  DJINN_RETURN_IF_ERROR(cluster->StartChildren());
  DJINN_RETURN_IF_ERROR(cluster->WaitForWorkers());
  return cluster;
}

ClusterProcesses::~ClusterProcesses() { Stop(); }

std::string ClusterProcesses::coordinator_address() const {
  return absl::StrCat("unix:", Path("coordinator.sock"));
}

std::vector<pid_t> ClusterProcesses::worker_pids() const {
  std::vector<pid_t> pids;
  for (const auto& worker : workers_) pids.push_back(worker->pid());
  return pids;
}

std::string ClusterProcesses::worker_socket(size_t index) const {
  return absl::StrCat(Path(WorkerId(index)), ".sock");
}

std::string ClusterProcesses::worker_log(size_t index) const {
  return absl::StrCat(Path(WorkerId(index)), ".log");
}

absl::Status ClusterProcesses::RestartWorker(size_t index) {
  workers_[index]->Stop(absl::ZeroDuration());
  DJINN_RETURN_IF_ERROR(StartWorker(index));
  return WaitForWorkers();
}

absl::Status ClusterProcesses::RestartCoordinator() {
  coordinator_->Stop(absl::ZeroDuration());
  DJINN_RETURN_IF_ERROR(StartCoordinator());
  return WaitForWorkers();
}

void ClusterProcesses::Stop() {
  // A forked child has a copy of this object, but owns neither the processes
  // nor the folder.
  const bool owns = getpid() == owner_;
  for (const auto& worker : workers_) worker->Signal(SIGTERM);
  for (const auto& worker : workers_) worker->Stop(kStopGrace);
  if (coordinator_ != nullptr) coordinator_->Stop(kStopGrace);
  for (int* fd : {&lifeline_read_, &lifeline_write_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
  if (owns && !folder_.empty()) RemoveFolder(folder_);
  folder_.clear();
  if (folder_lock_ >= 0) close(std::exchange(folder_lock_, -1));
}

absl::Status ClusterProcesses::Prepare() {
  DJINN_RETURN_IF_ERROR(MakeFolder());
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return SystemError("cannot make a pipe");
  lifeline_read_ = fds[0];
  lifeline_write_ = fds[1];

  RandomSource* const random = RandomSource::Real();
  admin_token_ = random->HexId();
  DJINN_RETURN_IF_ERROR(Write("join.token", random->HexId()));
  DJINN_RETURN_IF_ERROR(Write("admin.token", admin_token_));
  DJINN_RETURN_IF_ERROR(Write("tenant.token", random->HexId()));
  const absl::Duration heartbeat = options_.worker_timeout / 5;
  DJINN_RETURN_IF_ERROR(Write(
      "coordinator.yaml",
      absl::StrCat(
          "listen: ", coordinator_address(),
          "\nsession_timeout: ", absl::FormatDuration(options_.session_timeout),
          "\nworker_timeout: ", absl::FormatDuration(options_.worker_timeout),
          "\nheartbeat_interval: ", absl::FormatDuration(heartbeat),
          "\njoin_token_file: join.token"
          "\nadmin_token_file: admin.token"
          "\ntenants:"
          "\n  - name: local"
          "\n    token_file: tenant.token"
          "\n    max_sessions: ",
          kMaxSessions,
          "\n    limits:"
          "\n      memory: ",
          options_.worker_memory_bytes, "\n")));
  for (size_t i = 0; i < static_cast<size_t>(options_.workers); ++i) {
    std::string text = absl::StrCat(
        "worker_id: ", WorkerId(i), "\nlisten: unix:", worker_socket(i),
        "\ncoordinator: ", coordinator_address(),
        "\njoin_token_file: join.token"
        "\ndrain_timeout: 0s"
        "\nheartbeat_interval: ",
        absl::FormatDuration(heartbeat), "\ndevice:\n  kind: \"",
        absl::CEscape(options_.device_kind),
        "\"\n  memory: ", options_.worker_memory_bytes,
        // Calibration is off by default, because the workers are alike and a
        // program waits for their start.
        "\n  calibrate: ", options_.calibrate ? "true" : "false", "\n");
    if (options_.worker_threads > 0) {
      absl::StrAppend(&text, "  threads: ", options_.worker_threads, "\n");
    }
    if (!options_.operator_libraries.empty() ||
        !options_.optional_operator_libraries.empty()) {
      text += "operator_libraries:\n";
    }
    for (const std::string& path : options_.operator_libraries) {
      absl::StrAppend(&text, "  - path: \"", absl::CEscape(path), "\"\n");
    }
    for (const std::string& path : options_.optional_operator_libraries) {
      absl::StrAppend(&text, "  - path: \"", absl::CEscape(path),
                      "\"\n    required: false\n");
    }
    if (options_.worker_disk_bytes > 0) {
      absl::StrAppend(&text, "content_disk:\n  directory: ", WorkerId(i),
                      ".contents\n  limit: ", options_.worker_disk_bytes, "\n");
    }
    if (i < options_.advertise.size()) {
      absl::StrAppend(&text, "advertise: ", options_.advertise[i], "\n");
    } else {
      absl::StrAppend(&text, "shared_memory_socket: ", WorkerId(i), ".shm\n");
    }
    DJINN_RETURN_IF_ERROR(Write(absl::StrCat(WorkerId(i), ".yaml"), text));
  }
  return absl::OkStatus();
}

absl::Status ClusterProcesses::MakeFolder() {
  const char* const variable = std::getenv("TMPDIR");
  const std::string base =
      variable == nullptr || std::strlen(variable) > kMaxBaseLength ? "/tmp"
                                                                    : variable;
  RemoveAbandonedFolders(base);
  std::string folder = absl::StrCat(base, "/", kFolderPrefix, "XXXXXX");
  // The folder's mode is 0700.
  if (mkdtemp(folder.data()) == nullptr) {
    return SystemError(absl::StrCat("cannot make the folder ", folder));
  }
  folder_ = folder;
  folder_lock_ = open(Path(kLockFile).c_str(),
                      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (folder_lock_ < 0 || flock(folder_lock_, LOCK_EX | LOCK_NB) != 0) {
    return SystemError(absl::StrCat("cannot lock the folder ", folder));
  }
  return absl::OkStatus();
}

absl::Status ClusterProcesses::StartChildren() {
  DJINN_RETURN_IF_ERROR(StartCoordinator());
  for (int i = 0; i < options_.workers; ++i) {
    workers_.emplace_back();
    DJINN_RETURN_IF_ERROR(StartWorker(workers_.size() - 1));
  }
  return absl::OkStatus();
}

absl::Status ClusterProcesses::StartWorker(size_t index) {
  const std::string id = WorkerId(index);
  workers_[index] = std::make_unique<ChildProcess>();
  return workers_[index]->Start(
      programs_.worker,
      {absl::StrCat("--config=", Path(id), ".yaml"),
       absl::StrCat("--lifeline_fd=", ChildProcess::kLifelineFd)},
      lifeline_read_, worker_log(index));
}

absl::Status ClusterProcesses::StartCoordinator() {
  coordinator_ = std::make_unique<ChildProcess>();
  return coordinator_->Start(
      programs_.coordinator,
      {absl::StrCat("--config=", Path("coordinator.yaml")),
       absl::StrCat("--lifeline_fd=", ChildProcess::kLifelineFd)},
      lifeline_read_, coordinator_log());
}

absl::Status ClusterProcesses::WaitForWorkers() {
  const Deadline deadline(options_.start_timeout);
  // A worker that was killed before the coordinator's restart may stay away.
  std::vector<size_t> expected;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i]->Running() || !started_) expected.push_back(i);
  }
  absl::Status last;
  while (!deadline.passed()) {
    DJINN_RETURN_IF_ERROR(CheckRuns(*coordinator_, "the coordinator"));
    for (const size_t i : expected) {
      DJINN_RETURN_IF_ERROR(CheckRuns(*workers_[i], WorkerId(i)));
    }
    const absl::StatusOr<int> active =
        CountActiveWorkers(coordinator_address(), admin_token_, kProbeTimeout);
    if (active.ok() && static_cast<size_t>(*active) >= expected.size()) {
      started_ = true;
      return absl::OkStatus();
    }
    last = active.ok() ? absl::UnavailableError(absl::StrCat(
                             *active, " of ", expected.size(), " joined"))
                       : active.status();
    absl::SleepFor(kProbeInterval);
  }
  std::string text =
      absl::StrCat("the cluster was not complete within ",
                   absl::FormatDuration(options_.start_timeout), ": ",
                   last.message(), "\ncoordinator:\n", coordinator_->LogTail());
  for (size_t i = 0; i < workers_.size(); ++i) {
    absl::StrAppend(&text, "\n", WorkerId(i), ":\n", workers_[i]->LogTail());
  }
  return MakeError(absl::StatusCode::kDeadlineExceeded, "START_TIMEOUT", text);
}

absl::Status ClusterProcesses::Write(const std::string& name,
                                     const std::string& text) {
  const int fd =
      open(Path(name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && write(fd, text.data(), text.size()) ==
                                      static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  return written ? absl::OkStatus()
                 : SystemError(absl::StrCat("cannot write ", Path(name)));
}

std::string ClusterProcesses::WorkerId(size_t index) const {
  return absl::StrCat(options_.worker_prefix, index);
}

std::string ClusterProcesses::Path(const std::string& name) const {
  return absl::StrCat(folder_, "/", name);
}

}  // namespace djinn
