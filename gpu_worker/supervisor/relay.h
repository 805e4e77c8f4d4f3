// Divides the coordinator's orders among tenants, and joins the reports of
// their executors.
//
// Pure functions and values; not thread-safe.
#ifndef GPU_WORKER_SUPERVISOR_RELAY_H_
#define GPU_WORKER_SUPERVISOR_RELAY_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::worker {

// A lease that an executor was given.
struct RelayedLease {
  // The newest revision.
  v1::SignedLease lease;
  std::string session_id;
  // The revision of the executor's stream that listed it; 0 for an earlier
  // stream.
  uint64_t listed = 0;
  // When it was first given, by the supervisor's clock.
  absl::Duration since;
  // When its newest revision was given, by the executor's age (see
  // executor_record.h), and for how long each renewal holds, the grace
  // included. 0: for ever.
  absl::Duration given;
  absl::Duration valid;
};
using RelayedLeases = std::map<std::string, RelayedLease>;

// The parts of an executor's report that the supervisor uses.
struct ReportNews {
  // Leases that the report names and the executor was not given.
  std::vector<std::string> strangers;
  // Fingerprints of graphs whose plan the executor did not report before.
  std::vector<std::string> graphs;
};

// One executor's part of the worker's report, which the coordinator refuses
// above 64 MiB.
struct ReportPart {
  size_t contents = 65536;
  size_t graphs = 65536;
  size_t bytes = size_t{32} << 20;
};

// Keeps the reports of one executor's stream. The use of a lease never
// decreases.
class ExecutorReport {
 public:
  // Applies a report that CheckReport() accepted, of an executor that was given
  // these leases.
  ReportNews Apply(v1::WorkerState report, const RelayedLeases& given);
  // Adds the report to the worker's state, without entries that do not fit into
  // the executor's part. Every content becomes the tenant's. All sessions and
  // ended leases are added; if they do not fit, sessions lack the fields that
  // only operators read.
  void AddTo(const std::string& tenant, const ReportPart& part,
             v1::WorkerState* state) const;

  // Returns the use of a lease that the executor reported last.
  v1::LeaseUse UseOf(const std::string& lease_id) const;
  const std::map<std::string, v1::EndedLease>& ended() const { return ended_; }
  // Returns whether the lease is in force or ended at the executor.
  bool Names(const std::string& lease_id) const {
    return held_.contains(lease_id) || ended_.contains(lease_id);
  }
  // Returns run counts by fingerprint, for graphs of which the executor has a
  // plan.
  const absl::flat_hash_map<std::string, uint64_t>& graphs() const {
    return graphs_;
  }
  uint64_t used_bytes() const;
  const v1::ExecutionUse& executed() const { return last_.executed(); }

 private:
  // The last report without its leases.
  v1::WorkerState last_;
  std::map<std::string, v1::HeldSession> held_;
  std::map<std::string, v1::EndedLease> ended_;
  absl::flat_hash_map<std::string, uint64_t> graphs_;
};

// Keeps the orders of the coordinator's stream that a new executor gets first.
class StandingOrders {
 public:
  // Learns from the next message of the coordinator.
  void Learn(const v1::DesiredState& desired);

  // Returns the part of `desired` that concerns a tenant with these leases,
  // without its leases and revision. It names no other tenant, no other worker,
  // and no graph that the tenant's executor has not reported.
  static v1::DesiredState PartOf(const v1::DesiredState& desired,
                                 const std::string& tenant,
                                 const RelayedLeases& leases,
                                 const ExecutorReport& report);
  // Like PartOf(), for all orders that still hold, without phases.
  v1::DesiredState AllFor(const std::string& tenant) const;
  // Adds the known phase of the graph for the tenant.
  void AddPhases(const std::string& fingerprint, const std::string& tenant,
                 v1::DesiredState* out) const;
  // Returns the other workers that were ever named.
  const std::set<std::string>& workers() const { return workers_; }

 private:
  v1::DesiredState last_;
  std::set<std::string> retired_keys_;
  std::set<std::string> workers_;
  // Phases by fingerprint and tenant; the latter is empty for all tenants.
  std::map<std::pair<std::string, std::string>, v1::GraphPhase> phases_;
};

// Adds `added` to `sum`.
void AddExecution(const v1::ExecutionUse& added, v1::ExecutionUse* sum);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_RELAY_H_
