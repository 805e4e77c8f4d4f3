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
};
using RelayedLeases = std::map<std::string, RelayedLease>;

// What the coordinator's stream has said so far and a new executor must learn.
class StandingOrders {
 public:
  // Learns from the next message of the coordinator.
  void Learn(const v1::DesiredState& desired);

  // Returns the part of `desired` that concerns a tenant with these leases,
  // without its leases and revision. It names no other tenant and no other
  // worker.
  static v1::DesiredState PartOf(const v1::DesiredState& desired,
                                 const std::string& tenant,
                                 const RelayedLeases& leases);
  // Returns the same of everything that still holds.
  v1::DesiredState AllFor(const std::string& tenant) const;
  // Returns the other workers that were ever named.
  const std::set<std::string>& workers() const { return workers_; }

 private:
  v1::DesiredState last_;
  std::set<std::string> retired_keys_;
  std::set<std::string> workers_;
  // Phases by fingerprint and tenant; the latter is empty for all tenants.
  std::map<std::pair<std::string, std::string>, v1::GraphPhase> phases_;
};

// What one executor has reported on its stream.
class ExecutorReport {
 public:
  // Applies a report that CheckReport() accepted. Returns the leases that it
  // names and that are not among `given`.
  std::vector<std::string> Apply(v1::WorkerState report,
                                 const RelayedLeases& given);
  // Adds it to the worker's state. Every content becomes the tenant's; at most
  // `max_contents` are added.
  void AddTo(const std::string& tenant, size_t max_contents,
             v1::WorkerState* state) const;

  // Returns the last use of a lease that it reported.
  v1::LeaseUse UseOf(const std::string& lease_id) const;
  const std::map<std::string, v1::EndedLease>& ended() const { return ended_; }
  // Returns whether the lease is in force or ended at the executor.
  bool Names(const std::string& lease_id) const {
    return held_.contains(lease_id) || ended_.contains(lease_id);
  }
  uint64_t used_bytes() const;
  const v1::ExecutionUse& executed() const { return last_.executed(); }

 private:
  // The last report without its leases.
  v1::WorkerState last_;
  std::map<std::string, v1::HeldSession> held_;
  std::map<std::string, v1::EndedLease> ended_;
};

// Adds `added` to `sum`.
void AddExecution(const v1::ExecutionUse& added, v1::ExecutionUse* sum);

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_RELAY_H_
