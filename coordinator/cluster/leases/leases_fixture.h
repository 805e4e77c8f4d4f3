// Provides a cluster whose tenants have credit, to tests of leases.
#ifndef COORDINATOR_CLUSTER_LEASES_LEASES_FIXTURE_H_
#define COORDINATOR_CLUSTER_LEASES_LEASES_FIXTURE_H_

#include "common/base/proto_duration.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"

namespace djinn::coordinator {

class ClusterLeasesTest : public ClusterTest {
 protected:
  // Gives every tenant this credit.
  void Limit(const CreditLimits& credits) {
    for (Tenant& tenant : config_.tenants) tenant.credits = credits;
    limited_ = std::make_unique<Tenants>(config_.tenants);
    cluster_ = MakeCluster(&config_, limited_.get(), &clock_, &random_);
  }
  void Use(absl::Duration device_time, uint64_t bytes) {
    v1::LeaseUse* const use = w0_.mutable_sessions(0)->mutable_lease_use();
    *use->mutable_device_time() = ToProtoDuration(device_time);
    use->set_bytes(bytes);
  }
  // Returns the claims about the worker's only lease, if it gets a message.
  std::optional<v1::LeaseClaims> Listed(const StreamId& worker) {
    const std::optional<v1::DesiredState> desired = Desired(worker);
    if (!desired.has_value()) return std::nullopt;
    revision_ = desired->revision();
    EXPECT_THAT(desired->leases(), testing::SizeIs(1));
    return UncheckedClaims(desired->leases(0));
  }
  void Report(const StreamId& worker) {
    EXPECT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  }
  // Has the worker report the end of the session's lease.
  void EndThere(absl::Duration device_time, bool measuring) {
    w0_.clear_ended_leases();
    v1::EndedLease* const ended = w0_.add_ended_leases();
    *ended->mutable_lease() = lease_;
    *ended->mutable_use()->mutable_device_time() = ToProtoDuration(device_time);
    ended->set_measuring(measuring);
    w0_.clear_sessions();
  }
  absl::Duration UsedBy(const std::string& tenant) {
    return FromProtoDuration(
        views::GetTenant(*cluster_, tenant)->credits().used().device_time());
  }
  absl::Duration ReservedBy(const std::string& tenant) {
    return FromProtoDuration(views::GetTenant(*cluster_, tenant)
                                 ->credits()
                                 .reserved()
                                 .device_time());
  }

  // Gives every tenant this rate of device time.
  void SetRate(double nominal) {
    for (Tenant& tenant : config_.tenants) {
      tenant.device_rate = scheduler::RateQuota{.nominal = nominal};
    }
    Limit({.device_time_rated = true});
    clock_.Advance(absl::Seconds(1));
    coordinator::Tick(*cluster_);
  }
  // Runs a session with one lease, which closes after `took`; its use is
  // reported when it has ended. Returns what it was granted.
  absl::Duration RunProgram(const StreamId& worker, absl::Duration used,
                            absl::Duration took) {
    const StreamId session = Open("red");
    Grant(session, 0, worker, &w0_);
    lease_ = w0_.sessions(0).lease();
    const absl::Duration granted =
        FromProtoDuration(UncheckedClaims(lease_).credits().device_time());
    // A worker executes nothing without credit.
    if (granted == absl::ZeroDuration()) used = absl::ZeroDuration();
    clock_.Advance(took);
    sessions::Close(*cluster_, session);
    w0_.set_applied_revision(Desired(worker)->revision());
    EndThere(used, /*measuring=*/false);
    Report(worker);
    Keep();
    w0_.set_applied_revision(Desired(worker)->revision());
    w0_.clear_ended_leases();
    Report(worker);
    coordinator::Tick(*cluster_);
    return granted;
  }

  std::unique_ptr<Tenants> limited_;
  uint64_t revision_ = 0;
  v1::SignedLease lease_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CLUSTER_LEASES_LEASES_FIXTURE_H_
