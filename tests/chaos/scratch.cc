#include <iostream>
#include <fstream>
#include <atomic>
#include "client_lib/cluster/embedded_cluster.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "tests/chaos/workload.h"
using namespace djinn;
int main(int argc, char** argv) {
  ClusterOptions options; options.device_kind="fake"; options.worker_memory_bytes = atoi(argv[1]) << 20;
  auto cluster = *ClusterProcesses::Start(options);
  std::ifstream file(cluster->token_file()); std::string token; file >> token;
  for (int i = 0; i < atoi(argv[2]); ++i) {
    SessionOptions so;
    auto session = *OpenSession(so, *MakeGrpcCoordinatorLink(cluster->coordinator_address(), token), MakeGrpcWorkerConnector({}, 1));
    auto device = *session->Device(0);
    Workload w(device, 0, 1000 + i);
    WorkloadResult r = w.Run(false, 3000);
    std::cout << i << " calls " << r.calls << " reads " << r.reads << " " << r.error << " " << r.wrong << std::endl;
    (void)session->Close(absl::Seconds(5));
  }
}
