#include "tests/bench/tenant_cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"

namespace djinn::bench {
namespace {

namespace fs = std::filesystem;

std::string Program(const std::string& package, const std::string& name) {
  const char* const folder = std::getenv("DJINN_BIN_DIR");
  if (folder != nullptr && *folder != '\0') {
    return absl::StrCat(folder, "/", name);
  }
  return SiblingProgram(absl::StrCat("../../", package, "/", name));
}

void Write(const fs::path& file, const std::string& text) {
  std::ofstream(file) << text;
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
}

// Returns the page at this local address.
absl::StatusOr<std::string> Fetch(const std::string& address,
                                  const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  int port = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &port)) {
    return absl::InternalError(absl::StrCat("no address: ", address));
  }
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(static_cast<uint16_t>(port));
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", address,
                   "\r\nConnection: close\r\n\r\n");
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) ==
          0 &&
      write(fd, request.data(), request.size()) ==
          static_cast<ssize_t>(request.size())) {
    char bytes[4096];
    for (ssize_t count; (count = read(fd, bytes, sizeof(bytes))) > 0;) {
      answer.append(bytes, static_cast<size_t>(count));
    }
  }
  close(fd);
  if (!absl::StrContains(answer, " 200 ")) {
    return absl::UnavailableError(absl::StrCat("no page at ", address));
  }
  return answer;
}

}  // namespace

absl::StatusOr<std::string> ReadLinePatiently(ChildProcess* process) {
  absl::StatusOr<std::string> line = process->ReadLine();
  for (int i = 1; i < 12 && !line.ok(); ++i) line = process->ReadLine();
  return line;
}

absl::Status ConnectPatiently(const ConnectOptions& options) {
  absl::Status connected;
  for (int i = 0; i < 30; ++i) {
    connected = Connect(options);
    if (connected.ok()) break;
    absl::SleepFor(absl::Milliseconds(200));
  }
  return connected;
}

absl::StatusOr<std::unique_ptr<TenantCluster>> TenantCluster::Start(
    const Settings& settings) {
  std::string folder = (fs::temp_directory_path() / "djinn-bench-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::InternalError("cannot make a folder");
  }
  std::unique_ptr<TenantCluster> cluster(new TenantCluster(folder));
  std::string tenants;
  for (const std::string& name : settings.tenants) {
    absl::StrAppend(&tenants, "  - {name: ", name, ", token_file: ", name, ", ",
                    settings.of_tenants, "}\n");
    Write(cluster->folder_ / name, absl::StrCat("token-of-", name, "\n"));
  }
  for (const char* name : {"join", "admin"}) {
    Write(cluster->folder_ / name, absl::StrCat("token-of-", name, "\n"));
  }
  constexpr char kBoth[] =
      "\njoin_token_file: join\nheartbeat_interval: 200ms"
      "\nmonitoring: {listen: '127.0.0.1:0'}\n";
  Write(cluster->folder_ / "coordinator.yaml",
        absl::StrCat("listen: ", cluster->coordinator(), kBoth,
                     "admin_token_file: admin\ntenants:\n", tenants));
  Write(cluster->folder_ / "worker.yaml",
        absl::StrCat("worker_id: w0\nlisten: ", settings.worker_listens,
                     "\ncoordinator: ", cluster->coordinator(), kBoth,
                     "shared_memory_socket: w0.shm\n", settings.of_worker));
  DJINN_ASSIGN_OR_RETURN(
      cluster->coordinator_process_,
      cluster->Run("coordinator", "djinn-coordinator", "coordinator"));
  DJINN_RETURN_IF_ERROR(cluster->StartWorker());
  return cluster;
}

TenantCluster::~TenantCluster() {
  worker_.reset();
  coordinator_process_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

absl::Status TenantCluster::StartWorker() {
  if (worker_ != nullptr) kill(worker_->pid(), SIGKILL);
  worker_.reset();
  DJINN_ASSIGN_OR_RETURN(worker_, Run("gpu_worker", "djinn-worker", "worker"));
  return absl::OkStatus();
}

std::string TenantCluster::coordinator() const {
  return absl::StrCat("unix:", (folder_ / "coordinator.sock").string());
}

ConnectOptions TenantCluster::connect_options(const std::string& tenant) const {
  ConnectOptions options;
  options.coordinator = coordinator();
  options.token_file = token_file(tenant);
  return options;
}

absl::StatusOr<double> TenantCluster::Metric(const std::string& process,
                                             const std::string& name) const {
  std::string address;
  std::ifstream(folder_ / (process + ".monitoring")) >> address;
  DJINN_ASSIGN_OR_RETURN(const std::string page, Fetch(address, "/metrics"));
  double sum = 0;
  bool found = false;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const size_t end = line.find_first_of("{ ");
    double value = 0;
    if (end == line.npos || line.substr(0, end) != name ||
        !absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) {
      continue;
    }
    sum += value;
    found = true;
  }
  if (!found) return absl::NotFoundError(absl::StrCat("no metric ", name));
  return sum;
}

// Starts a program that logs to a file and ends with its standard input.
absl::StatusOr<std::unique_ptr<ChildProcess>> TenantCluster::Run(
    const std::string& package, const std::string& name,
    const std::string& role) const {
  const std::string file = (folder_ / role).string();
  return ChildProcess::Start(
      "/bin/sh", {"-c",
                  "exec \"$0\" \"--config=$1.yaml\" --lifeline_fd=0"
                  " \"--monitoring_address_file=$1.monitoring\" 2>>\"$1.log\"",
                  Program(package, name), file});
}

}  // namespace djinn::bench
