// A worker's configuration file:
//
//   worker_id: w0                     # stable name, required
//   listen: 127.0.0.1:0               # or unix:PATH
//   advertise: 10.0.0.5:7080          # address for clients; default: the bound
//                                     # address
//   shared_memory_socket: w0.shm      # for clients of this machine and user;
//                                     # w0.shm.pull for workers; default: all
//                                     # use gRPC
//   tls:                              # default: no encryption for clients
//     certificate_file: worker.crt    # PEM, with its chain
//     private_key_file: worker.key
//     client_ca_file: ca.crt          # requires certificates of clients
//   coordinator: 127.0.0.1:7070       # required; several coordinators that
//                                     # share a store: "HOST:PORT,HOST:PORT"
//   coordinator_tls:                  # default: no encryption
//     ca_file: ca.crt                 # issuer of the coordinator's certificate
//     certificate_file: worker.crt    # shown to the coordinator
//     private_key_file: worker.key
//     server_name: coordinator        # name in the coordinator's certificate;
//                                     # default: the address's host
//   peer_tls:                         # for other workers; default: as
//                                     # coordinator_tls if tls is on
//     ca_file: ca.crt
//     certificate_file: worker.crt
//     private_key_file: worker.key
//     server_name: djinn-worker
//   insecure: false                   # allows other hosts without TLS
//   monitoring:                       # default: no metrics over HTTP
//     listen: 127.0.0.1:9465
//     insecure: false                 # allows other hosts
//   tracing:                          # default: no traces
//     endpoint: 127.0.0.1:4317        # a collector's OTLP/gRPC port
//     sample_ratio: 1                 # share of the traces that clients sample
//     tls: {ca_file: collector.crt}   # the keys of coordinator_tls
//     insecure: false                 # allows other hosts without TLS
//   join_token_file: join.token       # required, relative to this file
//   admin_token_file: admin.token     # allows its bearer to query channelz
//   device:
//     kind: cpu                       # or cuda:0, or cuda: a worker for each
//                                     # GPU, as a process of its own; fake and
//                                     # fake:all are the same for tests
//     memory: 8GiB                    # 0: half of the machine's, or most of
//                                     # the GPU's free memory
//     min_free: 0                     # with less memory available, the worker
//                                     # is not ready; cuda: 2GiB
//     threads: 0                      # within one operator; 0: one per core
//     packed_weights: true            # cpu, fast mode: prepacked weights
//     packed_weight_memory: 0         # limit; 0: a quarter of the memory
//     fuse_attention: true            # fast mode: fuses attention that a
//                                     # program writes as several operators
//     longest_call: 1m                # cpu: refuses calls on repeated elements
//                                     # that would take longer
//     calibrate: true                 # measures the speed at start
//     speed:                          # the speed, instead of calibration
//       flops_per_second: 6e13
//       bytes_per_second: 9e11
//       seconds_per_call: 5us
//     plugin: /opt/libdjinn_cuda.so   # cuda; default: beside the program
//     nvml_library: libnvidia-ml.so.1 # tells a GPU's health; a worker without
//                                     # it starts, too
//     graph_memory: 0                 # cuda: memory for device graphs; 0: a
//                                     # sixteenth of the memory
//     graphs: true                    # cuda: whether to record device graphs
//   price_per_hour: 2.5               # of the device, in any unit
//   link_bandwidth: 1.25GB            # of this worker's network link, per
//                                     # second; 0: unknown
//   capabilities: [bfloat16]          # that tenants may demand
//   phases: [llm_decode]              # that the worker serves; default: all
//   operator_libraries:               # with operators besides PyTorch's
//     - path: /opt/operators/libmine.so
//       required: true                # false: the worker starts without one
//                                     # that cannot be loaded
//   installed_operator_libraries: true  # torchvision's and torchaudio's, if
//                                     # they are installed beside PyTorch
//   heartbeat_interval: 2s
//   transfer_idle_timeout: 30s        # ends an upload without progress
//   offer_timeout: 10m                # ends an offer that no worker fetches
//   resume_timeout: 15s               # keeps a session whose stream broke
//   drain_timeout: 10s                # how long SIGTERM waits for virtual
//                                     # devices to migrate
//   max_connections: 16384            # of clients
//   graph_cache_entries: 4096
//   max_batch_runs: 16                # most runs in a batch; 1: no batching
//   tokens_first: true                # runs that make a token preempt prompts
//                                     # and training
//   isolation:
//     mode: process                   # each tenant's kernels run in a process
//                                     # of its own; shared: all in one.
//                                     # Default: shared where listen is a Unix
//                                     # socket or loopback, otherwise process;
//                                     # a cuda device must say it there.
//                                     # process is experimental on one, and
//                                     # needs device.memory
//     executors: 4                    # most tenants at a time; each has an
//                                     # equal part of the device's memory
//     node_limit: 5m                  # ends a tenant's process when one of
//                                     # its nodes takes longer
//     content_memory: 8GiB            # besides device.memory, for contents
//                                     # that tenants share; default: they share
//                                     # none. Neither this nor content_disk
//                                     # goes with Unix sockets for clients
//     ports: 7100-7163                # of the executors, where listen is no
//                                     # Unix socket; default: any
//   content_disk:                     # default: a restarted worker has no
//                                     # contents
//     directory: contents             # created with mode 0700; relative to
//                                     # this file
//     limit: 100GiB                   # required
#ifndef GPU_WORKER_CONFIG_H_
#define GPU_WORKER_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/config_reader.h"
#include "common/net/tls/tls_files.h"
#include "common/net/tls_config.h"
#include "common/net/tracing/tracing_config.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/placement.pb.h"

namespace djinn::worker {

// Suffix of shared_memory_socket for the socket at which other workers fetch
// values.
inline constexpr char kPullSocketSuffix[] = ".pull";
// Stands between the configured names and the number of a GPU, in the names of
// the workers of all GPUs.
inline constexpr char kGpuSuffix[] = "-gpu";

struct WorkerConfig {
  std::string worker_id;
  std::string listen;
  std::string advertise;
  // Empty when there is none.
  std::string shared_memory_socket;
  ServerTls tls;
  std::string coordinator;
  ChannelTls coordinator_tls;
  ChannelTls peer_tls;
  bool insecure = false;
  MonitoringConfig monitoring;
  std::string join_token;
  // Empty when there is none.
  std::string admin_token;
  // "cpu", "cuda" or "fake".
  std::string device_kind;
  // The device's index, for a kind with several devices.
  int device_ordinal = 0;
  // Empty when FindCudaPlugin() is to find it.
  std::string device_plugin;
  uint64_t graph_memory = 0;
  // 0 when the device determines it.
  uint64_t device_memory = 0;
  // 0 when any will do.
  uint64_t min_free_bytes = 0;
  int device_threads = 0;
  bool packed_weights = true;
  bool fuse_attention = true;
  bool graphs = true;
  uint64_t packed_weight_memory = 0;
  absl::Duration longest_call = absl::Minutes(1);
  // True when the caller of ReadWorkerConfig() must measure `speed`, which is
  // unset then. The caller also sets `numerics` (see WorkerHello).
  bool calibrate = true;
  v1::DeviceSpeed speed;
  std::string numerics;
  double price_per_hour = 0;
  uint64_t link_bandwidth = 0;
  std::vector<std::string> capabilities;
  // Empty when the worker serves all phases.
  std::vector<v1::Phase> phases;
  // Absolute paths.
  std::vector<std::string> operator_libraries;
  std::vector<std::string> optional_operator_libraries;
  bool installed_operator_libraries = true;
  absl::Duration heartbeat_interval;
  absl::Duration transfer_idle_timeout;
  absl::Duration offer_timeout = absl::Minutes(10);
  absl::Duration resume_timeout = absl::Seconds(15);
  absl::Duration drain_timeout = absl::Seconds(10);
  size_t max_connections = 16384;
  size_t graph_cache_entries = 0;
  size_t max_batch_runs = 16;
  bool tokens_first = true;
  // Whether each tenant's kernels run in a process of its own. The rest holds
  // only then.
  bool isolated = false;
  // Set in the executor of one tenant, which has no configuration file.
  bool one_tenant = false;
  size_t executors = 4;
  // Longest time that one node may take.
  absl::Duration node_limit = absl::Minutes(5);
  // 0 and 0 when executors listen at any port.
  uint16_t first_executor_port = 0;
  uint16_t last_executor_port = 0;
  // Empty when there is no disk store.
  std::string content_disk_directory;
  uint64_t content_disk_limit = 0;
  // Memory for contents that the supervisor of executors keeps.
  uint64_t content_memory = 0;
  // Empty when the device's health is not asked of NVML.
  std::string nvml_library;
  // Whether there is a worker for each GPU.
  bool all_gpus = false;
  // In the worker of one of all GPUs: its GPU.
  std::string gpu_uuid;
  TracingConfig tracing;
  // In the executor of one tenant on a GPU: the most of the GPU's memory that
  // the process takes for values and temporaries. 0: no limit.
  uint64_t process_memory = 0;
};

// Returns InvalidArgument (BAD_CONFIG), which names every error with line and
// path.
absl::StatusOr<WorkerConfig> ReadWorkerConfig(ConfigReader reader);

}  // namespace djinn::worker

#endif  // GPU_WORKER_CONFIG_H_
