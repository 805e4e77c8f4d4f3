// A client that tests kill or suspend. It makes calls on a cluster until a call
// fails or its input ends.
//
// usage: chaos_client COORDINATOR TOKEN_FILE SEED
//
// Prints "works" after its first calls. Exits with status 0 after the end of
// its input or after a typed error, which it prints, and with status 1
// otherwise.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "common/base/error.h"
#include "tests/chaos/workload.h"

namespace djinn {
namespace {

int Report(const absl::Status& error) {
  std::cout << error << std::endl;
  return error.ok() || !ErrorReason(error).empty() ? 0 : 1;
}

int Run(const std::string& coordinator, const std::string& token_file,
        uint64_t seed) {
  std::ifstream file(token_file);
  std::string token;
  file >> token;
  auto link = MakeGrpcCoordinatorLink(coordinator, token);
  if (!link.ok()) return Report(link.status());
  SessionOptions options;
  options.operation_timeout = absl::Seconds(10);
  options.program = "chaos_client";
  auto session =
      OpenSession(options, *std::move(link), MakeGrpcWorkerConnector());
  if (!session.ok()) return Report(session.status());
  auto device = (*session)->Device(0);
  if (!device.ok()) return Report(device.status());
  Workload workload(*device, 0, seed);
  WorkloadResult result = workload.Run(false, 20);
  if (result.error.ok() && result.wrong.empty()) {
    std::cout << "works" << std::endl;
    std::atomic<bool> stop{false};
    std::thread input([&stop] {
      char ignored;
      while (read(STDIN_FILENO, &ignored, 1) > 0) {
      }
      stop = true;
    });
    input.detach();
    result = workload.Run(stop);
  }
  if (!result.wrong.empty()) {
    std::cout << "wrong: " << result.wrong << std::endl;
    std::_Exit(1);
  }
  const int status = Report(result.error);
  (void)(*session)->Close(absl::Seconds(2));
  // The thread that waits for input still exists.
  std::_Exit(status);
}

}  // namespace
}  // namespace djinn

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: chaos_client COORDINATOR TOKEN_FILE SEED\n";
    return 2;
  }
  return djinn::Run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
}
