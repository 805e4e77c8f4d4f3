// Provides a cluster with one worker whose tenants red and blue have quotas.
#ifndef COORDINATOR_TESTING_QUOTA_FIXTURE_H_
#define COORDINATOR_TESTING_QUOTA_FIXTURE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/admin/operations.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/placement/migration.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/testing/cluster_fixture.h"

namespace djinn::coordinator {

inline constexpr int64_t kGiB = int64_t{1} << 30;

// A lease of either tenant takes 1 GiB.
class ClusterQuotaTest : public ClusterTest {
 protected:
  // Sets the memory quotas of red and blue, which lend to each other.
  void Lend(int64_t red, int64_t blue) {
    config_.tenants[0].quotas[0].nominal = red * kGiB;
    config_.tenants[1].quotas[0].nominal = blue * kGiB;
    for (Tenant& tenant : config_.tenants) tenant.cohort = "lab";
    tenants::Set(*cluster_, config_.tenants);
  }
  // Asks for a lease. Returns the response after the worker has applied its
  // desired state.
  std::optional<v1::SessionResponse> Ask(const StreamId& session) {
    return AskAt(worker_, &w0_, session);
  }
  std::optional<v1::SessionResponse> AskAt(const StreamId& worker,
                                           v1::WorkerState* state,
                                           const StreamId& session) {
    EXPECT_TRUE(
        requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
    Execute(worker, state);
    return Next(session);
  }
  StreamId Leased(const std::string& tenant) {
    const StreamId session = Open(tenant);
    EXPECT_TRUE(Ask(session)->has_granted());
    return session;
  }
  // Leases where another worker may have to act first.
  void LeaseBeside(const std::string& tenant, const StreamId& other,
                   v1::WorkerState* state) {
    const StreamId session = Open(tenant);
    EXPECT_TRUE(
        requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
    Execute(worker_, &w0_);
    Execute(other, state);
    EXPECT_TRUE(Next(session)->has_granted());
  }
  void SetRedMemory(int64_t nominal) {
    config_.tenants[0].quotas[0].nominal = nominal;
    tenants::Set(*cluster_, config_.tenants);
  }
  // Lets another worker join, and asks the session to migrate there.
  StreamId MoveTo(v1::WorkerState* other, const StreamId& session) {
    const StreamId there = Join(*other);
    v1::MigrateSessionRequest migrate;
    migrate.set_session_id(session.owner);
    EXPECT_TRUE(operations::MigrateSession(*cluster_, migrate).ok());
    Execute(there, other);
    return there;
  }
  void NoteMoved(const StreamId& session, const v1::MigrationRequest& request) {
    v1::MigrationOutcome done;
    done.set_from_lease_id(request.from_lease_id());
    done.set_to_lease_id(request.to().lease().lease_id());
    EXPECT_TRUE(migration::NoteOutcome(*cluster_, session, done).ok());
  }
  v1::ResourceQuota MemoryOf(const std::string& tenant) {
    return views::GetTenant(*cluster_, tenant)->quotas(0);
  }

  StreamId worker_ = Join(w0_);
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TESTING_QUOTA_FIXTURE_H_
