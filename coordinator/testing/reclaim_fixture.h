// Provides a cluster in which a tenant borrows and another one reclaims.
#ifndef COORDINATOR_TESTING_RECLAIM_FIXTURE_H_
#define COORDINATOR_TESTING_RECLAIM_FIXTURE_H_

#include <cstdint>
#include <string>

#include "common/base/proto_duration.h"
#include "common/metrics/exposition.h"
#include "coordinator/admin/explain.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {

// Red borrows a GiB of quota from blue with each lease, and fills w0. Green is
// not in their cohort.
class ClusterReclaimTest : public ClusterTest {
 protected:
  ClusterReclaimTest() {
    config_.tenants.push_back(TestTenant("green"));
    Lend(0, 3);
    w0_.set_free_bytes(1000);
    worker_ = Join(w0_);
  }
  static constexpr int64_t kGiB = int64_t{1} << 30;

  void Lend(int64_t red, int64_t blue) {
    config_.tenants[0].quotas[0].nominal = red * kGiB;
    config_.tenants[1].quotas[0].nominal = blue * kGiB;
    config_.tenants[0].cohort = config_.tenants[1].cohort = "lab";
    tenants::Set(*cluster_, config_.tenants);
  }
  void Ask(const StreamId& session, uint64_t bytes) {
    EXPECT_EQ(requests::Request(*cluster_, session,
                                TestLeaseRequest(0, ++hash_, bytes)),
              absl::OkStatus());
  }
  StreamId OpenAndAsk(const std::string& tenant, uint64_t bytes) {
    const StreamId session = Open(tenant);
    Ask(session, bytes);
    return session;
  }
  // Opens a session that holds `bytes` at the worker, which has as much less.
  StreamId Fill(const std::string& tenant, uint64_t bytes,
                const StreamId& worker, v1::WorkerState* state) {
    const StreamId session = OpenAndAsk(tenant, bytes);
    Execute(worker, state);
    EXPECT_TRUE(Has(session));
    HeldBy(session, state)->set_storage_bytes(bytes);
    state->set_free_bytes(state->free_bytes() - bytes);
    EXPECT_EQ(workers::Report(*cluster_, worker, *state), absl::OkStatus());
    return session;
  }
  StreamId Fill(const std::string& tenant, uint64_t bytes) {
    return Fill(tenant, bytes, worker_, &w0_);
  }
  static v1::HeldSession* HeldBy(const StreamId& session,
                                 v1::WorkerState* state) {
    for (v1::HeldSession& held : *state->mutable_sessions()) {
      if (UncheckedClaims(held.lease()).session_id() == session.owner) {
        return &held;
      }
    }
    ADD_FAILURE() << "the worker does not hold " << session.owner;
    return state->mutable_sessions(0);
  }
  void Work(const StreamId& session, absl::Duration device_time) {
    *HeldBy(session, &w0_)->mutable_lease_use()->mutable_device_time() =
        ToProtoDuration(device_time);
    EXPECT_EQ(workers::Report(*cluster_, worker_, w0_), absl::OkStatus());
  }
  // Has the worker drop the sessions that it is told to drop, and report the
  // free bytes.
  void DropAndReport(uint64_t free_bytes) {
    w0_.set_free_bytes(free_bytes);
    Execute(worker_, &w0_);
  }
  bool Has(const StreamId& session) {
    const auto next = Next(session);
    return next.has_value() && next->has_granted();
  }
  // Returns whether the session's last lease was reclaimed.
  bool Lost(const StreamId& session) {
    const auto next = Next(session);
    return next.has_value() && next->ended().reason() == "QUOTA_RECLAIMED";
  }
  v1::DeviceExplanation Explain(const StreamId& session) {
    return explain::ExplainSession(*cluster_, session.owner)->devices(0);
  }

  StreamId worker_;
  uint64_t hash_ = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TESTING_RECLAIM_FIXTURE_H_
