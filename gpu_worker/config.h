// A worker's configuration file:
//
//   worker_id: w0                     # stable name, required
//   listen: 127.0.0.1:0               # or unix:PATH
//   advertise: 10.0.0.5:7080          # what clients dial; the bound address
//   shared_memory_socket: w0.shm      # for clients of this machine and user,
//                                     # and w0.shm.pull for workers; none:
//                                     # they come over gRPC, too
//   tls:                              # none: clients' bytes are not encrypted
//     certificate_file: worker.crt    # PEM, with its chain
//     private_key_file: worker.key
//     client_ca_file: ca.crt          # clients must show certificates
//   coordinator: 127.0.0.1:7070       # required
//   coordinator_tls:                  # none: as above
//     ca_file: ca.crt                 # who signed the coordinator's
//     certificate certificate_file: worker.crt    # shown to the coordinator
//     private_key_file: worker.key
//     server_name: coordinator        # whom it must name; the address's host
//   peer_tls:                         # for the other workers; without it,
//                                     # where tls is on, as coordinator_tls
//     ca_file: ca.crt
//     certificate_file: worker.crt
//     private_key_file: worker.key
//     server_name: djinn-worker
//   insecure: false                   # other hosts without TLS
//   monitoring:                       # none: no metrics over HTTP
//     listen: 127.0.0.1:9465
//     insecure: false                 # other hosts
//   join_token_file: join.token       # required, relative to this file
//   admin_token_file: admin.token     # who has it may ask for channelz
//   device:
//     kind: cpu                       # or cuda:0, or fake
//     memory: 8GiB                    # 0: half of the machine's, or most of
//                                     # what the GPU has free
//     threads: 0                      # inside one operator; 0: one per core
//     packed_weights: true            # prepacked copies of weights in fast
//                                     # mode, of cpu
//     packed_weight_memory: 0         # for all; 0: a quarter of the memory
//     fuse_attention: true            # in fast mode, where a program spells
//                                     # it out
//     calibrate: true                 # measure its speed at start
//     speed:                          # what it is instead
//       flops_per_second: 6e13
//       bytes_per_second: 9e11
//       seconds_per_call: 5us
//     plugin: /opt/libdjinn_cuda.so   # of cuda; beside the program
//     graph_memory: 0                 # of cuda, for recorded runs; 0: a
//                                     # sixteenth of the memory
//     graphs: true                    # of cuda: whether runs are recorded
//   price_per_hour: 2.5               # of the device; the unit is yours
//   link_bandwidth: 1.25GB            # a second, of the way to it; 0: unknown
//   capabilities: [bfloat16]          # what tenants may demand
//   phases: [llm_decode]              # what it is kept for; none: all
//   operator_libraries:               # with operators besides PyTorch's
//     - path: /opt/operators/libmine.so
//   heartbeat_interval: 2s
//   transfer_idle_timeout: 30s        # an upload that stands still
//   offer_timeout: 10m                # a copy that no other worker fetches
//   resume_timeout: 15s               # how long a broken stream is waited for
//   max_connections: 16384            # of clients
//   graph_cache_entries: 4096
//   max_batch_runs: 16                # that share products; 1: none do
//   tokens_first: true                # runs that make a token interrupt those
//                                     # that read a prompt or train
//   content_disk:                     # none: a restarted worker has nothing
//     directory: contents             # made with mode 0700; relative to this
//     limit: 100GiB                   # required
#ifndef GPU_WORKER_CONFIG_H_
#define GPU_WORKER_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/config_reader.h"
#include "common/net/monitoring_config.h"
#include "common/net/tls_files.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/placement.pb.h"

namespace djinn::worker {

// Behind shared_memory_socket: where other workers fetch values.
inline constexpr char kPullSocketSuffix[] = ".pull";

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
  // Of a kind with several devices.
  int device_ordinal = 0;
  // Empty: where FindCudaPlugin() finds it.
  std::string device_plugin;
  uint64_t graph_memory = 0;
  // 0: as the device finds it.
  uint64_t device_memory = 0;
  int device_threads = 0;
  bool packed_weights = true;
  bool fuse_attention = true;
  bool graphs = true;
  uint64_t packed_weight_memory = 0;
  // Whether the caller of ReadWorkerConfig() is to measure `speed`, which is
  // then not given. It says what `numerics` are, too, as in WorkerHello.
  bool calibrate = true;
  v1::DeviceSpeed speed;
  std::string numerics;
  double price_per_hour = 0;
  uint64_t link_bandwidth = 0;
  std::vector<std::string> capabilities;
  // Empty: all.
  std::vector<v1::Phase> phases;
  // Absolute paths.
  std::vector<std::string> operator_libraries;
  absl::Duration heartbeat_interval;
  absl::Duration transfer_idle_timeout;
  absl::Duration offer_timeout = absl::Minutes(10);
  absl::Duration resume_timeout = absl::Seconds(15);
  size_t max_connections = 16384;
  size_t graph_cache_entries = 0;
  size_t max_batch_runs = 16;
  bool tokens_first = true;
  // Empty: none.
  std::string content_disk_directory;
  uint64_t content_disk_limit = 0;
};

// InvalidArgument (BAD_CONFIG) names every error, with line and path.
absl::StatusOr<WorkerConfig> ReadWorkerConfig(ConfigReader reader);

}  // namespace djinn::worker

#endif  // GPU_WORKER_CONFIG_H_
