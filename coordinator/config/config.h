// Reads the coordinator's configuration, a YAML file such as
//
//   listen: 127.0.0.1:7070          # or unix:PATH
//   tls:                            # absent: nothing is encrypted
//     certificate_file: server.crt  # PEM, with its chain
//     private_key_file: server.key
//     client_ca_file: ca.crt        # clients and workers must show
//     certificates
//   insecure: false                 # other hosts without TLS
//   monitoring:                     # absent: no metrics over HTTP
//     listen: 127.0.0.1:9464
//     insecure: false               # other hosts
//   tracing:                        # absent: no traces
//     endpoint: 127.0.0.1:4317      # a collector's OTLP/gRPC port
//     sample_ratio: 1               # share of migrations and recoveries, and
//                                   # of the traces that clients sample
//     tls: {ca_file: collector.crt} # the keys of etcd.tls; absent: not
//                                   # encrypted
//     insecure: false               # other hosts without TLS
//   session_timeout: 30s            # life of a session without a stream
//   worker_timeout: 10s             # silence after which a worker is lost
//   worker_silence: 3s              # silence after which other workers are
//                                   # preferred; absent: one and a half times
//                                   # heartbeat_interval, and at least 3s
//   heartbeat_interval: 2s          # to workers; they should do the same
//   lease_valid_for: 1m             # validity of a lease without renewal
//   lease_grace_period: 10m         # extension for sessions that run while the
//                                   # coordinator is away
//   lease_key_lifetime: 720h        # then another key signs leases
//   lease_request_timeout: 10s      # longest wait for a worker to be granted
//   line_patience: 5s               # wait after which a worker is reserved
//                                   # for the first request in the wait queue;
//                                   # absent: half of lease_request_timeout
//   reclaim_spares_for: 30s         # age before which a lease is not reclaimed
//                                   # if an older one suffices
//   reclaim_loss_limit: 10m         # device time that a tenant may lose by
//                                   # reclaims in any minute; beyond it, others
//                                   # yield or the reclaim waits; at least 1s
//   graph_store_size: 256MiB        # size of the graphs that are kept
//   scaler:                         # absent: KEDA is not answered
//     listen: 127.0.0.1:7071        # without a token; TLS as above
//     insecure: false               # other hosts without TLS
//     target_utilisation: 0.7       # busy fraction of a worker's time
//   recorded_jobs: 0                # number of past jobs kept for
//                                   # `djinnctl record`
//   placement_policy: minimize_latency  # or maximize_throughput,
//                                   # minimize_cost, load_balance
//   automatic_migration: false      # migrate where that pays
//   state_file: coordinator.db      # absent: no state outlives the process,
//                                   # unless there is etcd
//   etcd:                           # absent: this coordinator is the only one
//     endpoints: [127.0.0.1:2379]   # servers of one etcd cluster; required
//     prefix: djinn                 # first part of the keys
//     lease: 5s                     # after which another coordinator leads if
//                                   # the leader is silent; whole seconds
//     tls:                          # of the servers; absent: not encrypted
//       ca_file: etcd-ca.crt
//       certificate_file: etcd.crt  # if the servers demand one
//       private_key_file: etcd.key
//       server_name: etcd           # absent: the endpoint's host
//     insecure: false               # other hosts without TLS
//   advertise: 10.0.0.1:7070        # where clients and workers reach this
//                                   # coordinator, with etcd; absent: listen
//   join_token_file: join.token     # paths are relative to this file
//   admin_token_file: admin.token
//   operators:                      # besides the bearer of the admin token
//     - name: vera                  # in the audit log
//       role: viewer                # or operator, admin
//       token_file: vera.token
//   cohorts:                        # absent: no quotas of their own, no limits
//     - name: lab/vision
//       fairSharing:
//         weight: 1                 # beside tenants and cohorts of lab
//       quota:                      # the same keys as for tenants
//         memory_bytes:
//           nominalQuota: 32GiB     # lent to members; absent: 0
//           borrowingLimit: 64GiB   # of all members, from the rest of lab
//           lendingLimit: 16GiB     # of all members, to the rest of lab
//   tenants:
//     - name: research
//       token_file: research.token
//       max_sessions: 64
//       limits:                     # per session and worker
//         memory: 16GiB
//         content_memory: 12GiB     # part of memory for uploads that are kept
//                                   # to be shared; absent: all
//         storage_memory: 8GiB      # part for all else, such as results;
//                                   # absent: all
//         cache_memory: 6GiB        # part for storages found to be caches;
//                                   # absent: caches count as storage_memory
//         max_outstanding: 256      # messages, at least 2
//         max_outstanding_bytes: 64MiB  # at least inline_bytes and 1MiB
//         inline_bytes: 64KiB       # 8KiB to 32MiB
//         max_graphs: 4096          # at least 1
//       totals:                     # of all its sessions on one worker
//         memory: 1TiB              # defaults of these three: max_sessions
//         max_outstanding: 16384    # times the limit
//         max_outstanding_bytes: 4GiB
//         content_memory: 800GiB    # absent: up to memory
//         storage_memory: 512GiB    # absent: up to memory
//         cache_memory: 384GiB
//         max_models: 20            # registered; absent: unlimited
//         model_bytes: 8GiB         # kept by each; absent: unlimited
//       node_limit: 30s             # ends its process on a worker when one
//                                   # of its nodes takes longer; absent: the
//                                   # worker's limit alone
//       credits:                    # of all its leases together; absent:
//         device_time: 100h         # unlimited
//         bytes: 1TB
//         period: 24h               # after which credit is renewed; absent:
//                                   # never
//       placement:
//         policy: minimize_cost     # absent: placement_policy
//         required: [cuda, bfloat16]  # device kinds, capabilities of workers
//       fairSharing:
//         weight: 1                 # on each device, beside other tenants
//       max_priority_class: realtime  # or interactive, batch
//       share_contents: false       # shares uploads with tenants that do, on
//                                   # proof
//       batch_with_others: false    # batches products with tenants that do
//       cohort: lab/vision          # lends to and borrows from others in lab
//       quota:                      # of all its leases; absent: unlimited
//         memory_bytes:             # or content_bytes, storage_bytes,
//                                   # cache_bytes, outstanding_messages
//           nominalQuota: 64GiB
//           borrowingLimit: 16GiB   # absent: unlimited
//           lendingLimit: 32GiB
//         device_seconds_per_second: {nominalQuota: 2.5}
//         bytes_per_second: {nominalQuota: 100MB}
//
// The values of settings that have a default are the defaults. The token files
// and at least one tenant are required; TLS is off by default.
#ifndef COORDINATOR_CONFIG_CONFIG_H_
#define COORDINATOR_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/config_reader.h"
#include "common/net/tls/tls_files.h"
#include "common/net/tls_config.h"
#include "common/net/tracing/tracing_config.h"
#include "coordinator/config/operators.h"
#include "coordinator/config/tenants.h"
#include "scheduler/placement/policy.h"

namespace djinn::coordinator {

struct Config {
  std::string listen = "127.0.0.1:7070";
  ServerTls tls;
  bool insecure = false;
  MonitoringConfig monitoring;
  absl::Duration session_timeout = absl::Seconds(30);
  absl::Duration worker_timeout = absl::Seconds(10);
  absl::Duration heartbeat_interval = absl::Seconds(2);
  absl::Duration worker_silence = 1.5 * heartbeat_interval;
  absl::Duration lease_valid_for = absl::Minutes(1);
  absl::Duration lease_grace_period = absl::Minutes(10);
  absl::Duration lease_key_lifetime = absl::Hours(720);
  absl::Duration lease_request_timeout = absl::Seconds(10);
  absl::Duration line_patience = lease_request_timeout / 2;
  absl::Duration reclaim_spares_for = absl::Seconds(30);
  absl::Duration reclaim_loss_limit = absl::Minutes(10);
  uint64_t graph_store_bytes = uint64_t{256} << 20;
  struct Scaler {
    // Empty for none.
    std::string listen;
    bool insecure = false;
    double target_utilisation = 0.7;
  };
  Scaler scaler;
  // Whether virtual devices migrate to other workers where that pays.
  bool automatic_migration = false;
  std::string placement_policy = std::string(scheduler::kDefaultPolicy);
  // Number of jobs that are recorded for traces; 0 for none.
  size_t recorded_jobs = 0;
  // Empty for none.
  std::string state_file;
  // The store that several coordinators share.
  struct Etcd {
    // Empty for none.
    std::vector<std::string> endpoints;
    std::string prefix = "djinn";
    absl::Duration lease = absl::Seconds(5);
    ChannelTls tls;
    bool insecure = false;

    bool enabled() const { return !endpoints.empty(); }
  };
  Etcd etcd;
  // The address that other coordinators name while this one leads. Empty: the
  // address on which it listens.
  std::string advertise;
  // Secrets.
  std::string join_token;
  std::string admin_token;
  // Besides the bearer of the admin token.
  std::vector<Operator> operators;
  std::vector<Cohort> cohorts;
  std::vector<Tenant> tenants;
  TracingConfig tracing;
};

// Returns all who may operate the cluster: the bearer of the admin token, who
// is called "admin", and the others.
std::vector<Operator> OperatorsOf(const Config& config);

// Reads the configuration. InvalidArgument (BAD_CONFIG) lists all errors.
absl::StatusOr<Config> ReadConfig(ConfigReader reader);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_CONFIG_H_
