#include "coordinator/testing/etcd_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/net/socket.h"
#include "coordinator/persistence/etcd_client.h"

namespace djinn::coordinator {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(60);

// Finds the program beside the test's own files, or where setup.sh leaves it.
absl::StatusOr<std::string> FindEtcd() {
  std::vector<std::string> places = {"../etcd/etcd", "external/etcd/etcd",
                                     ".deps/etcd/etcd"};
  if (const char* const folder = std::getenv("DJINN_ETCD")) {
    places.insert(places.begin(), absl::StrCat(folder, "/etcd"));
  }
  for (const std::string& place : places) {
    if (access(place.c_str(), X_OK) == 0) return place;
  }
  return absl::NotFoundError(
      "etcd is missing: `./djinn test //coordinator/...` unpacks it");
}

// Returns an address of this host whose port is free at the moment.
absl::StatusOr<std::string> FreeAddress() {
  DJINN_ASSIGN_OR_RETURN(const Listener listener, Listen("127.0.0.1:0"));
  return listener.address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdServer>> EtcdServer::Start() {
  auto server = absl::WrapUnique(new EtcdServer);
  DJINN_ASSIGN_OR_RETURN(server->program_, FindEtcd());
  const char* const base = std::getenv("TEST_TMPDIR");
  std::string folder =
      absl::StrCat(base == nullptr ? "/tmp" : base, "/etcd.XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::InternalError("cannot make a folder for etcd");
  }
  server->folder_ = folder;
  absl::Status status;
  // Another process may take a port before etcd does.
  for (int i = 0; i < 3; ++i) {
    DJINN_ASSIGN_OR_RETURN(server->endpoint_, FreeAddress());
    DJINN_ASSIGN_OR_RETURN(server->peer_, FreeAddress());
    status = server->Restart();
    if (status.ok()) return server;
    server->Kill();
    std::filesystem::remove_all(server->folder_ + "/data");
  }
  return status;
}

EtcdServer::~EtcdServer() {
  Kill();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void EtcdServer::Signal(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

void EtcdServer::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, 0), nullptr, 0);
}

std::string EtcdServer::Log() const {
  std::ifstream file(folder_ + "/log");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status EtcdServer::Restart() {
  std::vector<std::string> arguments = {
      program_,
      "--name=test",
      absl::StrCat("--data-dir=", folder_, "/data"),
      absl::StrCat("--listen-client-urls=http://", endpoint_),
      absl::StrCat("--advertise-client-urls=http://", endpoint_),
      absl::StrCat("--listen-peer-urls=http://", peer_),
      absl::StrCat("--initial-advertise-peer-urls=http://", peer_),
      absl::StrCat("--initial-cluster=test=http://", peer_),
      // The shortest lease is one and a half times the election time-out.
      "--heartbeat-interval=50",
      "--election-timeout=500",
      "--logger=zap",
      "--log-level=warn",
  };
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string log = folder_ + "/log";
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // Only calls that are safe after a fork of a process with threads.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (output >= 0) {
      dup2(output, STDOUT_FILENO);
      dup2(output, STDERR_FILENO);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  if (pid_ < 0) return absl::InternalError("cannot fork");

  EtcdClientOptions options;
  options.endpoints = {endpoint_};
  DJINN_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdClient> client,
                         EtcdClient::Make(options));
  etcdserverpb::RangeRequest request;
  request.set_key("ready");
  const absl::Time deadline = absl::Now() + kStartTimeout;
  absl::Status status;
  while (absl::Now() < deadline) {
    status = client->Range(request).status();
    if (status.ok()) return status;
    int ended = 0;
    if (waitpid(pid_, &ended, WNOHANG) == pid_) {
      pid_ = 0;
      return absl::InternalError("etcd ended:\n" + Log());
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("etcd: ", status.message(), "\n", Log()));
}

}  // namespace djinn::coordinator
