// A cluster whose workers have a process per tenant, for tests.
#ifndef TESTS_SECURITY_WALLS_H_
#define TESTS_SECURITY_WALLS_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/cluster/child_process.h"
#include "djinn/v1/admin.pb.h"
#include "gtest/gtest.h"
#include "tests/e2e/admin_client.h"
#include "tests/e2e/eventually.h"

namespace djinn {

inline std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the value of a field in a line of the log.
inline std::string FieldOf(absl::string_view line, const std::string& key) {
  for (const absl::string_view part : absl::StrSplit(line, ' ')) {
    if (absl::StartsWith(part, key + "=")) {
      return std::string(part.substr(key.size() + 1));
    }
  }
  return "";
}

// Returns the log of a worker, with what executors wrote in place of the lines
// that quote it.
inline std::string WithoutQuotes(absl::string_view log) {
  std::string plain;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    constexpr absl::string_view kBegin = " line=";
    const size_t begin = line.find(kBegin);
    absl::string_view said;
    if (absl::StrContains(line, " msg=\"executor wrote\" ") &&
        begin != line.npos) {
      said = line.substr(begin + kBegin.size());
    }
    std::string unquoted;
    if (said.empty()) {
      absl::StrAppend(&plain, line, "\n");
    } else if (absl::ConsumePrefix(&said, "\"") &&
               absl::ConsumeSuffix(&said, "\"") &&
               absl::CUnescape(said, &unquoted)) {
      absl::StrAppend(&plain, unquoted, "\n");
    } else {
      absl::StrAppend(&plain, said, "\n");
    }
  }
  return plain;
}

// Further settings of a cluster of Walls.
struct MoreOfWalls {
  // Tenants that share contents.
  std::set<std::string> sharing;
  // Further lines of every worker's configuration.
  std::string of_workers;
  // Whether workers have sockets for shared memory. Those that keep contents
  // may not.
  bool shared_memory = true;
};

// A coordinator with the tenants `attacker` and `victim`, further ones
// `attacker0`, `attacker1`, …, and workers w0, w1, … of the given isolation.
class Walls {
 public:
  explicit Walls(const std::string& isolation, int workers = 1,
                 int more_attackers = 0, const MoreOfWalls& more = {})
      : workers_(static_cast<size_t>(workers)) {
    // Tests that run at the same time may have the same process id, each in a
    // namespace of its own.
    std::string folder = "/tmp/djinn-walls-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
    EXPECT_EQ(pipe2(lifeline_, O_CLOEXEC), 0);
    programs_ = FindClusterPrograms().value();
    std::vector<std::string> tenants = {"attacker", "victim"};
    for (int i = 0; i < more_attackers; ++i) {
      tenants.push_back(absl::StrCat("attacker", i));
    }
    Write("join.token", TokenOf("join"));
    Write("admin.token", TokenOf("admin"));
    std::string list;
    for (const std::string& tenant : tenants) {
      Write(tenant + ".token", TokenOf(tenant));
      absl::StrAppend(
          &list, "\n  - {name: ", tenant, ", token_file: ", tenant, ".token",
          more.sharing.contains(tenant) ? ", share_contents: true}" : "}");
    }
    coordinator_address_ =
        Start(&coordinator_, programs_.coordinator, "coordinator",
              "listen: 127.0.0.1:0"
              "\njoin_token_file: join.token"
              "\nadmin_token_file: admin.token"
              "\ntenants:" +
                  list + "\n");
    for (size_t i = 0; i < workers_.size(); ++i) {
      const std::string id = absl::StrCat("w", i);
      configurations_.push_back(absl::StrCat(
          "worker_id: ", id,
          "\nlisten: 127.0.0.1:0"
          "\nmonitoring: {listen: 127.0.0.1:0}",
          more.shared_memory
              ? absl::StrCat("\nshared_memory_socket: ", id, ".shm")
              : "",
          "\ncoordinator: ", coordinator_address_,
          "\njoin_token_file: join.token"
          "\ndevice: {kind: cpu, memory: 512MiB, threads: 1, "
          // Lets a node in that NODE_LIMIT must end.
          "longest_call: 1h, "
          "calibrate: false}"
          "\nheartbeat_interval: 100ms"
          "\nisolation: ",
          isolation, "\n", more.of_workers));
      StartWorker(i);
    }
  }
  ~Walls() {
    for (ChildProcess& worker : workers_) worker.Stop(absl::Seconds(10));
    coordinator_.Stop(absl::Seconds(5));
    if (testing::Test::HasFailure()) {
      for (size_t i = 0; i < workers_.size(); ++i) {
        std::fputs(log(i).c_str(), stderr);
      }
    }
    close(lifeline_[0]);
    close(lifeline_[1]);
    std::filesystem::remove_all(folder_);
  }

  // Ends the worker as its operator does, and starts another one in its place.
  void RestartWorker(size_t index = 0) {
    workers_[index].Stop(absl::Seconds(30));
    const std::string id = absl::StrCat("w", index);
    std::filesystem::remove(Path(id + ".address"));
    std::filesystem::remove(Path(id + ".monitoring"));
    StartWorker(index);
  }
  const std::string& coordinator() const { return coordinator_address_; }
  ChildProcess& worker(size_t index = 0) { return workers_[index]; }
  std::string log(size_t index = 0) const {
    return ReadAll(Path(absl::StrCat("w", index, ".log")));
  }
  std::string coordinator_log() const {
    return ReadAll(Path("coordinator.log"));
  }
  static std::string TokenOf(const std::string& tenant) {
    return "token-of-" + tenant;
  }
  v1::WorkerInfo Info(size_t index = 0) const {
    return AdminClient(coordinator_address_, Path("admin.token"))
        .Worker(absl::StrCat("w", index));
  }
  // Returns the process that serves clients at the address; 0 if none has.
  pid_t PidAt(const std::string& address) const {
    int pid = 0;
    for (const absl::string_view line : absl::StrSplit(log(), '\n')) {
      if (absl::StrContains(line, "executor started") &&
          FieldOf(line, "address") == address) {
        EXPECT_TRUE(absl::SimpleAtoi(FieldOf(line, "pid"), &pid));
      }
    }
    return pid;
  }
  // Returns the lines of the worker's monitoring port.
  std::string Metrics(size_t index = 0) const {
    const std::string address =
        ReadFirstWord(Path(absl::StrCat("w", index, ".monitoring")));
    int port = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(static_cast<uint16_t>(port));
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const std::string request =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::string answer;
    if (connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) ==
            0 &&
        write(fd, request.data(), request.size()) > 0) {
      char bytes[4096];
      for (ssize_t count; (count = read(fd, bytes, sizeof(bytes))) > 0;) {
        answer.append(bytes, static_cast<size_t>(count));
      }
    }
    close(fd);
    return answer;
  }

 private:
  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    chmod(Path(name).c_str(), 0600);
  }
  void StartWorker(size_t index) {
    Start(&workers_[index], programs_.worker, absl::StrCat("w", index),
          configurations_[index]);
  }
  std::string Start(ChildProcess* child, const std::string& program,
                    const std::string& name, const std::string& yaml) {
    Write(name + ".yaml", yaml);
    const absl::Status started = child->Start(
        program,
        {"--config=" + Path(name + ".yaml"),
         "--address_file=" + Path(name + ".address"),
         "--monitoring_address_file=" + Path(name + ".monitoring"),
         absl::StrCat("--lifeline_fd=", ChildProcess::kLifelineFd)},
        lifeline_[0], Path(name + ".log"));
    EXPECT_TRUE(started.ok()) << started;
    EXPECT_TRUE(Eventually(
        [&] {
          return !child->Running() ||
                 access(Path(name + ".address").c_str(), F_OK) == 0;
        },
        absl::Seconds(90)));
    EXPECT_TRUE(child->Running()) << ReadAll(Path(name + ".log"));
    return ReadFirstWord(Path(name + ".address"));
  }

  std::string folder_;
  int lifeline_[2] = {-1, -1};
  ClusterPrograms programs_;
  ChildProcess coordinator_;
  std::vector<ChildProcess> workers_;
  std::vector<std::string> configurations_;
  std::string coordinator_address_;
};

}  // namespace djinn

#endif  // TESTS_SECURITY_WALLS_H_
