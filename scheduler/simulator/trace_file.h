// Reads traces that people write, in YAML (or JSON, which is YAML). Comments
// give the unit or the default:
//
//   seed: 1
//   noise: 0.1                 # jobs take up to 10 % more or less
//   lease_request_timeout: 10  # seconds; these four are the coordinator's
//   line_patience: 5           # half of lease_request_timeout
//   reclaim_spares_for: 30     # seconds
//   reclaim_loss_limit: 600    # seconds
//   workers:
//     - name: fast             # with a count: fast0, fast1, ...
//       count: 4               # 1
//       device: cuda
//       memory: 80GB
//       flops_per_second: 1e14
//       bytes_per_second: 2e12
//       seconds_per_call: 1e-5 # 0
//       price_per_hour: 4      # 0
//       link_bandwidth: 10GB   # per second; 1GB
//       phases: [llm_decode]   # all
//   tenants:
//     - name: chat
//       weight: 3              # 1
//       priority: realtime     # of its jobs; or interactive, batch. Without
//                              # one, as for a session that declares none
//       run_deadline: 0.5      # of its jobs, in seconds; none
//       limits: {memory: 16GB} # quota that each of its jobs takes, as in the
//                              # coordinator; its largest state
//       cohort: lab/vision     # none
//       quota:                 # as in the coordinator (quota_reader.h)
//         memory_bytes: {nominalQuota: 64GB, lendingLimit: 32GB}
//         device_seconds_per_second: {nominalQuota: 2.5, borrowingLimit: 1}
//   cohorts:                   # none
//     - name: lab/vision
//       weight: 2              # 1
//       quota:                 # the same; nominalQuota: 0
//         memory_bytes: {nominalQuota: 16GB, borrowingLimit: 32GB}
//   jobs:                      # recorded ones, in order
//     - at: 1.5                # seconds
//       tenant: chat
//       state: llama           # none
//       state_size: 16GB
//       phase: llm_prefill
//       class: matmul          # of operators
//       flops: 1e13
//       bytes: 2e10
//       calls: 400
//       priority: batch        # the tenant's
//       run_deadline: 2        # the tenant's
//   streams:                   # generated ones, in addition
//     - count: 1000
//       start: 0
//       every: 0.02            # seconds on average
//       states: 8              # llama0, llama1, ...; 1: llama
//       spread: 0.5
//       job: {tenant: chat, ...}   # as above, without `at`
#ifndef SCHEDULER_SIMULATOR_TRACE_FILE_H_
#define SCHEDULER_SIMULATOR_TRACE_FILE_H_

#include "absl/status/statusor.h"
#include "common/config/config_reader.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler {

// Reads a trace. Returns InvalidArgument (BAD_CONFIG) with every error, each
// with line and path.
absl::StatusOr<Trace> ReadTrace(ConfigReader reader);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_TRACE_FILE_H_
