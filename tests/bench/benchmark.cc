#include "tests/bench/benchmark.h"

#include <cstdint>
#include <utility>

#include "ATen/Parallel.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "djinn/connect.h"
#include "tests/bench/statistics.h"

namespace djinn::bench {

EmbeddedClusterOptions ClusterOptions(const Options& options) {
  EmbeddedClusterOptions cluster;
  cluster.workers = 1;
  cluster.worker_threads = options.threads;
  cluster.worker_device = options.device;
  return cluster;
}

at::Device LocalDevice(const Options& options) {
  return at::Device(options.device);
}

std::string LocalEager(const Options& options) {
  return options.device == "cpu"
             ? absl::StrCat("local eager, ", options.threads, " threads")
             : absl::StrCat("local eager on ", options.device);
}

absl::StatusOr<std::string> Transport() {
  DJINN_ASSIGN_OR_RETURN(Placement placement, WhereIs());
  return std::move(placement.transport);
}

absl::Status MeasureRounds(int rounds, Side side) {
  for (int round = 0; round < rounds; ++round) {
    Settle();
    DJINN_RETURN_IF_ERROR(side(round));
  }
  return absl::OkStatus();
}

absl::Status InSession(const ConnectOptions& connect,
                       absl::FunctionRef<absl::Status()> work) {
  DJINN_RETURN_IF_ERROR(Connect(connect));
  absl::Status status = work();
  status.Update(Close());
  return status;
}

absl::Status WithDeviceOf(int workers, absl::FunctionRef<absl::Status()> work) {
  EmbeddedClusterOptions options;
  options.workers = workers;
  options.worker_threads = 1;
  options.worker_memory_bytes = uint64_t{2} << 30;
  DJINN_ASSIGN_OR_RETURN(const auto cluster, EmbeddedCluster::Start(options));
  ConnectOptions connect = cluster->connect_options();
  connect.device_workers[0] = workers;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const absl::Cleanup restore = [threads] { at::set_num_threads(threads); };
  return InSession(connect, work);
}

absl::Status Interleave(int rounds, Side a, Side b) {
  for (int round = 0; round < rounds; ++round) {
    const bool a_first = round % 2 == 0;
    Settle();
    DJINN_RETURN_IF_ERROR(a_first ? a(round) : b(round));
    Settle();
    DJINN_RETURN_IF_ERROR(a_first ? b(round) : a(round));
  }
  return absl::OkStatus();
}

}  // namespace djinn::bench
