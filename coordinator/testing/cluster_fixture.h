// Provides a cluster whose streams the test plays by hand.
#ifndef COORDINATOR_TESTING_CLUSTER_FIXTURE_H_
#define COORDINATOR_TESTING_CLUSTER_FIXTURE_H_

#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/lease/lease_verifier.h"
#include "common/metrics/exposition.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/placement/demand.h"
#include "coordinator/cluster/placement/stage_planner.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/config/config.h"
#include "coordinator/config/tenants.h"
#include "coordinator/persistence/persistence.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/waker.h"
#include "coordinator/testing/testing.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/placement.pb.h"
#include "djinn/v1/queue.pb.h"
#include "djinn/v1/quota.pb.h"
#include "djinn/v1/runs.pb.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {

class CountingWaker : public Waker {
 public:
  void Wake() override { ++count; }
  int count = 0;
};

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() { Restart(); }

  // Starts another coordinator process, with nothing in memory.
  void Restart() {
    cluster_.reset();
    cluster_ = MakeCluster(&config_, &tenants_, &clock_, &random_);
  }

  // Saves the state where another process would find it.
  void Keep() {
    persistence::Save(*cluster_);
    persistence::NoteKept(*cluster_);
  }

  absl::StatusOr<StreamId> Attach(const std::string& tenant,
                                  const std::string& resume = "") {
    return sessions::Attach(*cluster_, *tenants_.Find(tenant), TestOpen(resume),
                            std::make_shared<CountingWaker>());
  }
  // Attaches and reads the greeting.
  StreamId Open(const std::string& tenant, const std::string& resume = "") {
    const absl::StatusOr<StreamId> id = Attach(tenant, resume);
    EXPECT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(Next(*id)->has_opened());
    return *id;
  }
  std::optional<v1::SessionResponse> Next(const StreamId& id) {
    auto next = sessions::NextResponse(*cluster_, id);
    EXPECT_TRUE(next.ok()) << next.status();
    return next.ok() ? *next : std::nullopt;
  }

  StreamId Join(const v1::WorkerState& state) {
    const absl::StatusOr<StreamId> id =
        workers::Join(*cluster_, state, std::make_shared<CountingWaker>());
    EXPECT_TRUE(id.ok()) << id.status();
    return *id;
  }
  std::optional<v1::DesiredState> Desired(const StreamId& id) {
    auto next = workers::NextDesiredState(*cluster_, id);
    EXPECT_TRUE(next.ok()) << next.status();
    return next.ok() ? *next : std::nullopt;
  }
  // Has the worker apply its desired state: its next report holds the leases.
  void Execute(const StreamId& id, v1::WorkerState* state) {
    const std::optional<v1::DesiredState> desired = Desired(id);
    if (!desired.has_value()) return;
    state->set_applied_revision(desired->revision());
    for (const v1::SignedLease& lease : desired->leases()) {
      Hold(lease, state);
    }
    for (const std::string& session : desired->drop_session_ids()) {
      auto* const held = state->mutable_sessions();
      for (int i = held->size(); i-- > 0;) {
        if (UncheckedClaims(held->Get(i).lease()).session_id() == session) {
          held->DeleteSubrange(i, 1);
        }
      }
    }
    for (const std::string& lease_id : desired->drop_lease_ids()) {
      auto* const held = state->mutable_sessions();
      for (int i = held->size(); i-- > 0;) {
        if (UncheckedClaims(held->Get(i).lease()).lease_id() == lease_id) {
          held->DeleteSubrange(i, 1);
        }
      }
    }
    EXPECT_EQ(workers::Report(*cluster_, id, *state), absl::OkStatus());
  }
  static void Hold(const v1::SignedLease& lease, v1::WorkerState* state) {
    for (v1::HeldSession& held : *state->mutable_sessions()) {
      if (UncheckedClaims(held.lease()).lease_id() !=
          UncheckedClaims(lease).lease_id()) {
        continue;
      }
      *held.mutable_lease() = lease;
      return;
    }
    v1::HeldSession* const held = state->add_sessions();
    *held->mutable_lease() = lease;
    held->set_storage_count(1);
    held->set_storage_bytes(100);
  }
  v1::Lease Grant(const StreamId& session, uint32_t device,
                  const StreamId& worker, v1::WorkerState* state) {
    EXPECT_TRUE(
        requests::Request(*cluster_, session, TestLeaseRequest(device)).ok());
    Execute(worker, state);
    const std::optional<v1::SessionResponse> next = Next(session);
    EXPECT_TRUE(next.has_value() && next->has_granted());
    return next.has_value() ? next->granted().lease() : v1::Lease();
  }

  struct GrantedLease {
    StreamId worker;
    StreamId session;
    v1::Lease lease;
  };
  // Lets w0_ join, and gives a new session of the tenant a lease there.
  GrantedLease Granted(const std::string& tenant) {
    GrantedLease granted{Join(w0_), Open(tenant)};
    granted.lease = Grant(granted.session, 0, granted.worker, &w0_);
    return granted;
  }

  // Returns the text of a scrape.
  std::string Metrics() {
    Exposition exposition;
    scrape::Collect(*cluster_, &exposition);
    return exposition.Text();
  }

  // Returns the lease of the first session that the worker holds.
  static std::string LeaseId(const v1::WorkerState& state) {
    return UncheckedClaims(state.sessions(0).lease()).lease_id();
  }

  Config config_ = TestConfig();
  Tenants tenants_{config_.tenants};
  FakeClock clock_;
  FakeRandomSource random_;
  std::unique_ptr<ClusterState> cluster_;
  v1::WorkerState w0_ = TestWorker("w0");
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TESTING_CLUSTER_FIXTURE_H_
