// The coordinator's configuration.
//
//   listen: 127.0.0.1:7070          # or unix:PATH
//   tls:                            # none: nothing is encrypted
//     certificate_file: server.crt  # PEM, with its chain
//     private_key_file: server.key
//     client_ca_file: ca.crt        # clients and workers must show
//     certificates
//   insecure: false                 # other hosts without TLS
//   monitoring:                     # none: no metrics over HTTP
//     listen: 127.0.0.1:9464
//     insecure: false               # other hosts
//   session_timeout: 30s            # life of a session without a stream
//   worker_timeout: 10s             # silence after which a worker is lost
//   heartbeat_interval: 2s          # to workers; they should do the same
//   lease_valid_for: 1m             # without renewal
//   lease_grace_period: 10m         # more, for sessions that run, when we are
//                                   # away
//   lease_key_lifetime: 720h        # then leases are signed with another key
//   lease_request_timeout: 10s      # longest wait for a worker to be granted
//   line_patience: 5s               # then one is kept for the first in line;
//                                   # half of lease_request_timeout
//   reclaim_spares_for: 30s         # leases are not taken back before, as long
//                                   # as an older one will do
//   reclaim_loss_limit: 10m         # device time that a tenant loses by it in
//                                   # any minute, before others yield or it
//                                   # waits; at least 1s
//   graph_store_size: 256MiB        # graphs kept
//   scaler:                         # none: KEDA is not answered
//     listen: 127.0.0.1:7071        # without a token; TLS as above
//     insecure: false               # other hosts without TLS
//     target_utilisation: 0.7       # of a worker's time, busy
//   recorded_jobs: 0            # of the past, for `djinnctl record`
//   placement_policy: minimize_latency  # or maximize_throughput,
//                                   # minimize_cost, load_balance
//   automatic_migration: false      # move work where that pays
//   state_file: coordinator.db      # none: nothing outlives the process
//   join_token_file: join.token     # files relative to this one
//   admin_token_file: admin.token
//   cohorts:                        # absent: nothing of their own, no limits
//     - name: lab/vision
//       fairSharing:
//         weight: 1                 # beside tenants and cohorts of lab
//       quota:                      # keys as those of tenants
//         memory_bytes:
//           nominalQuota: 32GiB     # lent to whoever is in it; absent: 0
//           borrowingLimit: 64GiB   # of all in it, from the rest of lab
//           lendingLimit: 16GiB     # of all in it, to the rest of lab
//   tenants:
//     - name: research
//       token_file: research.token
//       max_sessions: 64
//       limits:                     # per session and worker
//         memory: 16GiB
//         content_memory: 12GiB     # of it, for uploads that are kept to be
//                                   # shared; absent: all
//         storage_memory: 8GiB      # for all else, such as results;
//                                   # likewise
//         cache_memory: 6GiB        # for what is found to be a cache; absent:
//                                   # it is of storage_memory
//         max_outstanding: 256      # messages, at least 2
//         max_outstanding_bytes: 64MiB  # at least inline_bytes and 1MiB
//         inline_bytes: 64KiB       # 8KiB to 32MiB
//         max_graphs: 4096      # at least 1
//       totals:                     # of all its sessions on one worker
//         memory: 1TiB              # these three: max_sessions times the
//         max_outstanding: 16384    # limit, unless given
//         max_outstanding_bytes: 4GiB
//         content_memory: 800GiB    # absent: what memory leaves
//         storage_memory: 512GiB    # likewise
//         cache_memory: 384GiB
//         max_models: 20            # registered; absent: not limited
//         model_bytes: 8GiB         # that each keeps using; likewise
//       credits:                    # of all its leases together; absent: not
//         device_time: 100h         # limited
//         bytes: 1TB
//         period: 24h               # absent: once and for all
//       placement:
//         policy: minimize_cost     # absent: the one above
//         required: [cuda, bfloat16]  # of workers: device kinds, capabilities
//       fairSharing:
//         weight: 1                 # of each device, beside other tenants
//       max_priority_class: realtime  # or interactive, batch
//       share_contents: false       # uploads, with tenants that do, on proof
//       batch_with_others: false    # products, with tenants that do
//       cohort: lab/vision          # lends to and borrows from others in lab
//       quota:                      # of all its leases; absent: not limited
//         memory_bytes:             # likewise content_bytes, storage_bytes,
//                                   # cache_bytes, outstanding_messages
//           nominalQuota: 64GiB
//           borrowingLimit: 16GiB   # absent: not limited
//           lendingLimit: 32GiB
//         device_seconds_per_second: {nominalQuota: 2.5}
//         bytes_per_second: {nominalQuota: 100MB}
//
// Values above are the defaults where there is one: the token files and at
// least one tenant are required, TLS is off.
#ifndef COORDINATOR_CONFIG_CONFIG_H_
#define COORDINATOR_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/config_reader.h"
#include "common/net/monitoring_config.h"
#include "common/net/tls_files.h"
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
  absl::Duration lease_valid_for = absl::Minutes(1);
  absl::Duration lease_grace_period = absl::Minutes(10);
  absl::Duration lease_key_lifetime = absl::Hours(720);
  absl::Duration lease_request_timeout = absl::Seconds(10);
  absl::Duration line_patience = lease_request_timeout / 2;
  absl::Duration reclaim_spares_for = absl::Seconds(30);
  absl::Duration reclaim_loss_limit = absl::Minutes(10);
  uint64_t graph_store_bytes = uint64_t{256} << 20;
  struct Scaler {
    // Empty: none.
    std::string listen;
    bool insecure = false;
    double target_utilisation = 0.7;
  };
  Scaler scaler;
  // Whether virtual devices migrate to other workers where that pays.
  bool automatic_migration = false;
  std::string placement_policy = std::string(scheduler::kDefaultPolicy);
  // Jobs that are recorded for traces; 0: none.
  size_t recorded_jobs = 0;
  // Empty: none.
  std::string state_file;
  // Secrets.
  std::string join_token;
  std::string admin_token;
  std::vector<Cohort> cohorts;
  std::vector<Tenant> tenants;
};

// InvalidArgument (BAD_CONFIG) lists everything that is wrong.
absl::StatusOr<Config> ReadConfig(ConfigReader reader);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_CONFIG_H_
