// Describes workers, sessions, tenants and leases to operators.
#ifndef COORDINATOR_ADMIN_VIEWS_H_
#define COORDINATOR_ADMIN_VIEWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/page.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/queue.pb.h"
#include "djinn/v1/usage.pb.h"

namespace djinn::coordinator::views {

// Sums over all workers of what a tenant has.
struct TenantSums {
  uint32_t leases = 0;
  uint64_t storage_bytes = 0;
  uint64_t content_bytes = 0;
  // Unset when no worker reports a lease of the tenant.
  std::optional<v1::SessionUse> use;
};

// Each Describe() fills `info` with what operators see of its argument.
void Describe(ClusterState& state, const Worker& worker, v1::WorkerInfo* info)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

void Describe(ClusterState& state, const Session& session,
              v1::SessionInfo* info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns the sums by tenant, in one pass. Leaves out tenants that have
// nothing.
absl::flat_hash_map<std::string, TenantSums> SumTenants(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns by tenant what each tenant uses and what it is entitled to.
std::map<std::string, v1::TenantStanding> Standings(ClusterState& state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

void Describe(ClusterState& state, const Tenant& tenant, const TenantSums& sums,
              v1::TenantInfo* info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

void Describe(ClusterState& state, const Lease& lease, v1::LeaseInfo* info)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

void Describe(ClusterState& state, const Migration& migration,
              v1::MigrationInfo* info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu);

// Returns a page of workers, by id.
Page<v1::WorkerInfo> Workers(ClusterState& state, const PageRange& range)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns a page of sessions, the oldest first.
Page<v1::SessionInfo> Sessions(ClusterState& state, const PageRange& range)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns a page of tenants, by name.
Page<v1::TenantInfo> TenantInfos(ClusterState& state, const PageRange& range)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns a page of leases, by id.
Page<v1::LeaseInfo> Leases(ClusterState& state, const PageRange& range)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns the worker, or NotFound (WORKER_UNKNOWN).
absl::StatusOr<v1::WorkerInfo> GetWorker(ClusterState& state,
                                         const std::string& id)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns the session with the id, which may be shortened, or NotFound
// (SESSION_UNKNOWN).
absl::StatusOr<v1::SessionInfo> GetSession(ClusterState& state,
                                           const std::string& id)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns the tenant, or NotFound (TENANT_UNKNOWN).
absl::StatusOr<v1::TenantInfo> GetTenant(ClusterState& state,
                                         const std::string& name)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Returns the lease, or NotFound (LEASE_UNKNOWN).
absl::StatusOr<v1::LeaseInfo> GetLease(ClusterState& state,
                                       const std::string& id)
    ABSL_LOCKS_EXCLUDED(state.mu);

// Adds to each graph what workers report of it: its runs, and which workers
// have a plan of it.
void DescribePlans(ClusterState& state, absl::Span<v1::GraphInfo> graphs)
    ABSL_LOCKS_EXCLUDED(state.mu);

}  // namespace djinn::coordinator::views

#endif  // COORDINATOR_ADMIN_VIEWS_H_
