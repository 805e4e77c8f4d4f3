// Counts the messages between workers and the cluster: one event causes one
// message that names one lease, however many leases there are.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ClusterChangesTest : public ClusterTest {
 protected:
  static constexpr int kSessions = 200;

  ClusterChangesTest() {
    config_.tenants[0].max_sessions = 2000;
    tenants::Set(*cluster_, config_.tenants);
    worker_ = Join(w0_);
    EXPECT_TRUE(Desired(worker_).has_value());
  }

  StreamId OpenAndAsk() {
    const StreamId session = Open("red");
    EXPECT_TRUE(
        requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
    return session;
  }
  void Acknowledge(uint64_t revision) {
    EXPECT_EQ(workers::Report(*cluster_, worker_, Acknowledgement(revision)),
              absl::OkStatus());
  }
  static v1::WorkerState Acknowledgement(uint64_t revision) {
    v1::WorkerState state;
    state.set_worker_id("w0");
    state.set_incarnation(1);
    state.set_applied_revision(revision);
    state.set_acknowledgement(true);
    return state;
  }
  // Returns a report that names only these leases.
  static v1::WorkerState Change(const std::vector<v1::SignedLease>& leases,
                                uint64_t revision) {
    v1::WorkerState state = TestWorker("w0");
    state.set_complete(false);
    state.set_applied_revision(revision);
    for (const v1::SignedLease& lease : leases) Hold(lease, &state);
    return state;
  }
  // Opens `count` sessions, each with a granted and reported lease.
  std::vector<StreamId> OpenAll(int count) {
    std::vector<StreamId> sessions;
    for (int i = 0; i < count; ++i) {
      sessions.push_back(OpenAndAsk());
      const v1::DesiredState desired = Desired(worker_).value();
      revision_ = desired.revision();
      leases_.push_back(desired.leases(0));
      Acknowledge(revision_);
      EXPECT_TRUE(Next(sessions.back())->has_granted());
      EXPECT_EQ(workers::Report(*cluster_, worker_,
                                Change({leases_.back()}, revision_)),
                absl::OkStatus());
    }
    return sessions;
  }

  StreamId worker_;
  uint64_t revision_ = 0;
  std::vector<v1::SignedLease> leases_;
};

TEST_F(ClusterChangesTest, EachGrantListsOneLease) {
  size_t messages = 0, listed = 0;
  for (int i = 0; i < kSessions; ++i) {
    const StreamId session = OpenAndAsk();
    while (const auto desired = Desired(worker_)) {
      ++messages;
      listed += desired->leases_size();
      Acknowledge(desired->revision());
    }
    EXPECT_TRUE(Next(session)->has_granted());
  }
  EXPECT_EQ(messages, size_t{kSessions});
  EXPECT_EQ(listed, size_t{kSessions});
}

TEST_F(ClusterChangesTest, HeartbeatOfIdleSessionsListsNoLease) {
  OpenAll(kSessions);
  clock_.Advance(config_.heartbeat_interval);
  const auto desired = Desired(worker_);
  ASSERT_TRUE(desired.has_value());
  EXPECT_THAT(desired->leases(), IsEmpty());
}

TEST_F(ClusterChangesTest, LeaseIsSignedAgainBeforeItExpires) {
  OpenAll(kSessions);
  // Workers report in time, so that none is lost.
  const absl::Duration due =
      (config_.lease_valid_for + config_.lease_grace_period) / 2;
  for (absl::Duration passed; passed < due;
       passed += config_.heartbeat_interval) {
    clock_.Advance(config_.heartbeat_interval);
    EXPECT_EQ(workers::Report(*cluster_, worker_, Change({}, revision_)),
              absl::OkStatus());
  }
  size_t listed = 0;
  while (const auto desired = Desired(worker_)) {
    listed += desired->leases_size();
    EXPECT_EQ(workers::Report(*cluster_, worker_,
                              Acknowledgement(desired->revision())),
              absl::OkStatus());
  }
  EXPECT_EQ(listed, size_t{kSessions});
}

TEST_F(ClusterChangesTest, EndedSessionIsNamedOnce) {
  const std::vector<StreamId> sessions = OpenAll(kSessions);
  sessions::Close(*cluster_, sessions[7]);
  const auto desired = Desired(worker_);
  ASSERT_TRUE(desired.has_value());
  EXPECT_THAT(desired->drop_session_ids(), ElementsAre(sessions[7].owner));
  EXPECT_THAT(desired->drop_lease_ids(), SizeIs(1));
  EXPECT_THAT(desired->leases(), IsEmpty());
  clock_.Advance(config_.heartbeat_interval);
  const auto next = Desired(worker_);
  ASSERT_TRUE(next.has_value());
  EXPECT_THAT(next->drop_session_ids(), IsEmpty());
  // The worker gets no other lease of the session until it reports the lease as
  // released.
  v1::WorkerState report = Change({}, next->revision());
  EXPECT_EQ(workers::Report(*cluster_, worker_, report), absl::OkStatus());
  EXPECT_EQ(views::GetWorker(*cluster_, "w0")->session_count(), kSessions);
  report.add_released_lease_ids(UncheckedClaims(leases_[7]).lease_id());
  EXPECT_EQ(workers::Report(*cluster_, worker_, report), absl::OkStatus());
  EXPECT_EQ(views::GetWorker(*cluster_, "w0")->session_count(), kSessions - 1);
}

TEST_F(ClusterChangesTest, NewStreamListsEverythingAgain) {
  const std::vector<StreamId> sessions = OpenAll(kSessions);
  sessions::Close(*cluster_, sessions[0]);
  EXPECT_TRUE(Desired(worker_).has_value());
  // The message is lost with the stream.
  workers::Leave(*cluster_, worker_);
  v1::WorkerState report = TestWorker("w0");
  for (const v1::SignedLease& lease : leases_) Hold(lease, &report);
  worker_ = Join(report);
  const auto desired = Desired(worker_);
  ASSERT_TRUE(desired.has_value());
  EXPECT_EQ(desired->revision(), 1u);
  EXPECT_THAT(desired->leases(), SizeIs(kSessions - 1));
  EXPECT_THAT(desired->drop_session_ids(), ElementsAre(sessions[0].owner));
}

TEST_F(ClusterChangesTest, MoreLeasesThanFitOneMessageFollowAtOnce) {
  constexpr int kMany = 1100;
  OpenAll(kMany);
  workers::Leave(*cluster_, worker_);
  v1::WorkerState report = TestWorker("w0");
  for (const v1::SignedLease& lease : leases_) {
    *report.add_sessions()->mutable_lease() = lease;
  }
  worker_ = Join(report);
  int messages = 0, listed = 0;
  while (const auto desired = Desired(worker_)) {
    ++messages;
    listed += desired->leases_size();
  }
  EXPECT_EQ(messages, 2);
  EXPECT_EQ(listed, kMany);
}

TEST_F(ClusterChangesTest, SettledUseIsToldOnce) {
  OpenAll(2);
  v1::WorkerState report = Change({}, revision_);
  const std::string lease_id = UncheckedClaims(leases_[0]).lease_id();
  *report.add_ended_leases()->mutable_lease() = leases_[0];
  report.add_released_lease_ids(lease_id);
  EXPECT_EQ(workers::Report(*cluster_, worker_, report), absl::OkStatus());
  Keep();
  const auto desired = Desired(worker_);
  ASSERT_TRUE(desired.has_value());
  EXPECT_THAT(desired->settled_lease_ids(), ElementsAre(lease_id));
  clock_.Advance(config_.heartbeat_interval);
  EXPECT_THAT(Desired(worker_)->settled_lease_ids(), IsEmpty());
}

TEST_F(ClusterChangesTest, GrantNamesTheTenantsOwnEndpoint) {
  const StreamId session = OpenAndAsk();
  v1::WorkerState state = Acknowledgement(Desired(worker_)->revision());
  v1::TenantEndpoint* endpoint = state.add_tenant_endpoints();
  endpoint->set_tenant("another");
  endpoint->set_address("127.0.0.1:7001");
  endpoint = state.add_tenant_endpoints();
  endpoint->set_tenant("red");
  endpoint->set_address("127.0.0.1:7002");
  endpoint->set_shared_memory_socket("/run/w0.shm.2");
  EXPECT_EQ(workers::Report(*cluster_, worker_, state), absl::OkStatus());
  const auto granted = Next(session);
  ASSERT_TRUE(granted.has_value() && granted->has_granted());
  EXPECT_EQ(granted->granted().lease().worker_address(), "127.0.0.1:7002");
  EXPECT_EQ(granted->granted().lease().shared_memory_socket(), "/run/w0.shm.2");
}

TEST_F(ClusterChangesTest, EndpointThatIsNoAddressIsRefused) {
  v1::WorkerState state = Acknowledgement(revision_);
  state.add_tenant_endpoints()->set_address("nowhere");
  EXPECT_EQ(workers::Report(*cluster_, worker_, state).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ClusterChangesTest, ClientHearsWhyTheWorkerEndedItsLease) {
  const std::vector<StreamId> sessions = OpenAll(1);
  v1::WorkerState report = Change({}, revision_);
  v1::EndedLease* const ended = report.add_ended_leases();
  *ended->mutable_lease() = leases_[0];
  ended->set_reason("EXECUTOR_LOST");
  EXPECT_EQ(workers::Report(*cluster_, worker_, report), absl::OkStatus());
  const auto heard = Next(sessions[0]);
  ASSERT_TRUE(heard.has_value() && heard->has_ended());
  EXPECT_EQ(heard->ended().reason(), "EXECUTOR_LOST");
}

TEST_F(ClusterChangesTest, FirstReportOfAStreamMustBeComplete) {
  v1::WorkerState report = TestWorker("w1");
  report.set_complete(false);
  EXPECT_EQ(workers::Join(*cluster_, report, std::make_shared<CountingWaker>())
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ClusterTest, EveryMessageCarriesTheTermAndLaterOnesAreKnownToBeLater) {
  {
    MutexLock lock(&cluster_->mu);
    cluster_->term = 7;
  }
  v1::WorkerState state = TestWorker("w7");
  state.set_known_term(7);
  const StreamId worker = Join(state);
  EXPECT_EQ(Desired(worker)->term(), 7u);
  const StreamId session = *Attach("red");
  EXPECT_EQ(Next(session)->term(), 7u);
  EXPECT_EQ(requests::Request(*cluster_, session, TestLeaseRequest(0)),
            absl::OkStatus());
  Execute(worker, &state);
  const auto granted = Next(session);
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->term(), 7u);
  // A peer that has seen a later leader knows better than this process.
  v1::WorkerState other = TestWorker("w8");
  other.set_known_term(8);
  EXPECT_EQ(ErrorReason(workers::Join(*cluster_, other,
                                      std::make_shared<CountingWaker>())
                            .status()),
            "NOT_LEADER");
  v1::OpenSession open = TestOpen();
  open.set_known_term(8);
  EXPECT_EQ(ErrorReason(sessions::Attach(*cluster_, *tenants_.Find("red"), open,
                                         std::make_shared<CountingWaker>())
                            .status()),
            "NOT_LEADER");
  // A process that was not elected is the only one, whatever came before.
  MutexLock lock(&cluster_->mu);
  cluster_->term = 0;
  EXPECT_EQ(cluster_->CheckTerm(8), absl::OkStatus());
}

}  // namespace
}  // namespace djinn::coordinator
