// Runs a cluster whose workers are killed, for a program that links the client
// library and so cannot link what starts clusters.
//
// usage: killable_cluster WORKERS THREADS
//
// Prints the coordinator's address and the path of the tenant's token. For each
// line with a worker's index, kills that worker, prints "killed", starts it
// again, and prints "restarted" once it has joined. Ends with its input.
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/cluster/embedded_cluster.h"

namespace djinn {
namespace {

int Fail(const absl::Status& status) {
  std::cerr << status << std::endl;
  return 1;
}

int Run(int workers, int threads) {
  ClusterOptions options;
  options.workers = workers;
  options.worker_threads = threads;
  options.worker_memory_bytes = uint64_t{1} << 30;
  auto started = ClusterProcesses::Start(options);
  if (!started.ok()) return Fail(started.status());
  ClusterProcesses& cluster = **started;
  std::cout << cluster.coordinator_address() << std::endl
            << cluster.token_file() << std::endl;
  size_t index = 0;
  while (std::cin >> index) {
    const std::vector<pid_t> pids = cluster.worker_pids();
    if (index >= pids.size() || kill(pids[index], SIGKILL) != 0) {
      return Fail(absl::InternalError("no such worker"));
    }
    std::cout << "killed" << std::endl;
    const absl::Status status = cluster.RestartWorker(index);
    if (!status.ok()) return Fail(status);
    std::cout << "restarted" << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace djinn

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: killable_cluster WORKERS THREADS\n";
    return 2;
  }
  return djinn::Run(std::atoi(argv[1]), std::atoi(argv[2]));
}
