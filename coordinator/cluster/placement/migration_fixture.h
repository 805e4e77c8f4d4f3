// Provides a session that migrates between two workers, to tests of migration.
#ifndef COORDINATOR_CLUSTER_PLACEMENT_MIGRATION_FIXTURE_H_
#define COORDINATOR_CLUSTER_PLACEMENT_MIGRATION_FIXTURE_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/proto_duration.h"
#include "coordinator/admin/operations.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/placement/migration.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/testing/cluster_fixture.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {

inline SharedWork WorkOf(semantics::Phase phase) {
  auto work = std::make_shared<scheduler::Work>();
  work->Add({semantics::OpClass::kMatmul, phase,
             semantics::Cost{.flops = uint64_t{10'000'000'000}}, 1});
  return work;
}

class ClusterMigrationTest : public ClusterTest {
 protected:
  ClusterMigrationTest() { Begin(); }

  // Opens a session with device 0 at w0; w1 is empty.
  void Begin() {
    here_ = Join(w0_);
    session_ = Open("red");
    lease_ = Grant(session_, 0, here_, &w0_);
    there_ = Join(w1_);
  }
  absl::StatusOr<v1::MigrateSessionResponse> Migrate(
      const std::string& to = "") {
    v1::MigrateSessionRequest request;
    request.set_session_id(session_.owner);
    request.set_to_worker_id(to);
    return operations::MigrateSession(*cluster_, request);
  }
  // Starts a migration, acknowledges the lease, and returns the client's
  // request.
  v1::MigrationRequest AskedToMigrate(const std::string& to = "") {
    const auto started = Migrate(to);
    EXPECT_TRUE(started.ok()) << started.status();
    Execute(there_, &w1_);
    return TakeRequest();
  }
  v1::MigrationRequest TakeRequest() {
    const std::optional<v1::SessionResponse> next = Next(session_);
    EXPECT_TRUE(next.has_value() && next->has_migrate());
    return next.has_value() ? next->migrate() : v1::MigrationRequest();
  }
  static v1::MigrationOutcome OutcomeOf(const v1::MigrationRequest& request) {
    v1::MigrationOutcome outcome;
    outcome.set_from_lease_id(request.from_lease_id());
    outcome.set_to_lease_id(request.to().lease().lease_id());
    outcome.set_storage_count(3);
    outcome.set_moved_bytes(1000);
    outcome.set_held_bytes(24);
    *outcome.mutable_paused() = ToProtoDuration(absl::Milliseconds(40));
    return outcome;
  }
  static v1::MigrationOutcome FailureOf(const v1::MigrationRequest& request) {
    v1::MigrationOutcome outcome = OutcomeOf(request);
    outcome.mutable_failure()->set_code(8);
    outcome.mutable_failure()->set_reason("SESSION_MEMORY");
    outcome.mutable_failure()->set_message("no room");
    return outcome;
  }
  void Note(const v1::MigrationOutcome& outcome) {
    EXPECT_EQ(migration::NoteOutcome(*cluster_, session_, outcome),
              absl::OkStatus());
  }
  // Returns the workers of the leases, in order.
  std::vector<std::string> Workers() {
    std::vector<std::string> workers;
    for (const v1::LeaseInfo& lease : views::Leases(*cluster_, {}).items) {
      workers.push_back(lease.worker_id());
    }
    return workers;
  }
  v1::MigrationInfo Last() {
    const auto info = views::GetSession(*cluster_, session_.owner);
    return info->migrations(info->migrations_size() - 1);
  }

  StreamId here_, there_, session_;
  v1::Lease lease_;
  v1::WorkerState w1_ = TestWorker("w1");
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_PLACEMENT_MIGRATION_FIXTURE_H_
