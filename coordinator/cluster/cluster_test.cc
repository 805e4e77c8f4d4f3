#include "coordinator/cluster/cluster.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/lease/lease_verifier.h"
#include "common/metrics/exposition.h"
#include "coordinator/admin/scrape.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/tables/cluster_limits.h"
#include "coordinator/tables/cluster_state.h"
#include "coordinator/tables/session_table.h"
#include "coordinator/testing/cluster_fixture.h"
#include "coordinator/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ClusterTest, GreetsWithTheTenantOfTheToken) {
  const StreamId id = Attach("red").value();
  const v1::SessionOpened opened = Next(id)->opened();
  EXPECT_EQ(opened.session_id(), id.owner);
  EXPECT_EQ(opened.tenant(), "red");
  EXPECT_EQ(Next(id), std::nullopt);
}

TEST_F(ClusterTest, RefusesAnotherProtocolVersion) {
  v1::OpenSession open = TestOpen();
  open.set_protocol_version(kProtocolVersion + 1);
  EXPECT_EQ(ErrorReason(sessions::Attach(*cluster_, *tenants_.Find("red"), open,
                                         nullptr)
                            .status()),
            "PROTOCOL_VERSION");
  w0_.set_protocol_version(kProtocolVersion + 1);
  EXPECT_EQ(ErrorReason(workers::Join(*cluster_, w0_, nullptr).status()),
            "PROTOCOL_VERSION");
  EXPECT_THAT(views::Workers(*cluster_, {}).items, IsEmpty());
}

TEST_F(ClusterTest, RefusesNamesThatAreTooLong) {
  v1::OpenSession open = TestOpen();
  const auto attach = [&] {
    return sessions::Attach(*cluster_, *tenants_.Find("red"), open,
                            std::make_shared<CountingWaker>())
        .status();
  };
  open.set_program(std::string(257, 'p'));
  EXPECT_EQ(attach().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(attach()), "PROTOCOL_VIOLATION");
  EXPECT_EQ(attach().message(),
            "a program's name of 257 bytes: at most 256 are allowed");
  open.set_program(std::string(256, 'p'));
  EXPECT_EQ(attach(), absl::OkStatus());
  open.set_placement_policy(std::string(60'000, 'q'));
  EXPECT_EQ(ErrorReason(attach()), "POLICY_UNKNOWN");
  EXPECT_LT(attach().message().size(), 100u);
}

TEST_F(ClusterTest, RefusesWhatAWorkerSaysAtTooGreatLength) {
  const std::string much(10'000, 'x');
  const auto join = [&](const v1::WorkerState& state) {
    const absl::Status status =
        workers::Join(*cluster_, state, std::make_shared<CountingWaker>())
            .status();
    EXPECT_LT(status.message().size(), 1000u);
    return ErrorReason(status);
  };
  EXPECT_EQ(join(TestWorker(much)), "PROTOCOL_VIOLATION");
  v1::WorkerState state = w0_;
  state.set_device(much);
  EXPECT_EQ(join(state), "PROTOCOL_VIOLATION");
  state = w0_;
  state.add_capabilities(much);
  EXPECT_EQ(join(state), "PROTOCOL_VIOLATION");
  EXPECT_THAT(views::Workers(*cluster_, {}).items, IsEmpty());
  // A later report may not contain it either.
  const StreamId worker = Join(w0_);
  w0_.set_address(much + ":1");
  EXPECT_EQ(ErrorReason(workers::Report(*cluster_, worker, w0_)),
            "PROTOCOL_VIOLATION");
}

TEST_F(ClusterTest, LogsRefusalsNowAndThen) {
  const StreamId session = Open("red");
  const auto lines = [&](int asks) {
    testing::internal::CaptureStderr();
    for (int i = 0; i < asks; ++i) {
      v1::LeaseRequest request = TestLeaseRequest(0);
      request.set_placement_policy("none");
      EXPECT_TRUE(requests::Request(*cluster_, session, request).ok());
      EXPECT_TRUE(Next(session)->has_refused());
    }
    const std::string log = testing::internal::GetCapturedStderr();
    int count = 0;
    for (size_t at = log.find("lease refused"); at != std::string::npos;
         at = log.find("lease refused", at + 1)) {
      ++count;
    }
    return std::pair(count, log);
  };
  EXPECT_EQ(lines(100).first, 8);
  clock_.Advance(absl::Seconds(1));
  const auto [count, log] = lines(1);
  EXPECT_EQ(count, 1);
  EXPECT_THAT(log, HasSubstr("unlogged_before=92"));
}

TEST_F(ClusterTest, LogsWhatAClientDoesWithItsLeasesNowAndThen) {
  const StreamId worker = Join(w0_);
  StreamId session = Open("red");
  const auto lines = [&](int times) {
    testing::internal::CaptureStderr();
    for (int i = 0; i < times; ++i) {
      v1::LeaseReturn returned;
      returned.set_lease_id(Grant(session, 0, worker, &w0_).lease_id());
      EXPECT_EQ(requests::Return(*cluster_, session, returned),
                absl::OkStatus());
      Execute(worker, &w0_);
      sessions::Detach(*cluster_, session);
      session = Open("red", session.owner);
    }
    return testing::internal::GetCapturedStderr();
  };
  // The events of each round are: offered, granted, returned, detached,
  // attached.
  const std::string log = lines(100);
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 300);
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(lines(1), HasSubstr("lines=245"));
}

TEST_F(ClusterTest, LimitsSessionsPerTenant) {
  for (int i = 0; i < 4; ++i) Open("red");
  const absl::Status refused = Attach("red").status();
  EXPECT_EQ(ErrorReason(refused), "TOO_MANY_SESSIONS");
  EXPECT_TRUE(refused.GetPayload("type.googleapis.com/google.rpc.QuotaFailure")
                  .has_value());
  Open("blue");
}

TEST_F(ClusterTest, WorkerKnowsTheLeaseBeforeTheClient) {
  const StreamId session = Open("red");
  const StreamId worker = Join(w0_);
  EXPECT_THAT(Desired(worker)->leases(), IsEmpty());
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Next(session), std::nullopt);

  const v1::DesiredState desired = *Desired(worker);
  ASSERT_THAT(desired.leases(), SizeIs(1));
  const v1::LeaseClaims record = UncheckedClaims(desired.leases(0));
  EXPECT_EQ(record.worker_id(), "w0");
  EXPECT_EQ(record.worker_incarnation(), w0_.incarnation());
  EXPECT_EQ(record.revision(), 1u);
  EXPECT_EQ(record.session_id(), session.owner);
  EXPECT_EQ(record.tenant(), "red");
  EXPECT_EQ(record.limits().max_graphs(), 16u);
  EXPECT_EQ(record.tenant_limits().max_outstanding(), 512u);
  EXPECT_EQ(record.valid_for().seconds(), 60);
  EXPECT_EQ(record.grace().seconds(), 600);
  EXPECT_FALSE(record.has_credits());
  // An older acknowledgement is not enough.
  w0_.set_applied_revision(desired.revision() - 1);
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_EQ(Next(session), std::nullopt);

  w0_.set_applied_revision(desired.revision());
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  const v1::LeaseGranted granted = Next(session)->granted();
  EXPECT_EQ(granted.lease().lease_id(), record.lease_id());
  EXPECT_EQ(granted.lease().token(), desired.leases(0).SerializeAsString());
  EXPECT_EQ(granted.lease().worker_address(), w0_.address());
  EXPECT_EQ(granted.lease().worker_incarnation(), w0_.incarnation());
  EXPECT_EQ(granted.lease().session_epoch(), 1u);
  // A repeated request gets the same lease.
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Next(session)->granted().lease().lease_id(), record.lease_id());
}

TEST_F(ClusterTest, RequestWaitsForAWorkerUntilItsDeadline) {
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  clock_.Advance(config_.lease_request_timeout - absl::Milliseconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(session), std::nullopt);
  clock_.Advance(absl::Milliseconds(1));
  coordinator::Tick(*cluster_);
  const v1::LeaseRefused refused = Next(session)->refused();
  EXPECT_EQ(refused.reason(), "NO_WORKER");
  EXPECT_EQ(refused.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  // A later request finds a worker that joined late.
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  const StreamId worker = Join(w0_);
  Execute(worker, &w0_);
  EXPECT_TRUE(Next(session)->has_granted());
}

TEST_F(ClusterTest, RequestTooLargeForEveryWorkerIsRefused) {
  config_.tenants[0].limits.set_memory_bytes(~uint64_t{0});
  config_.tenants[0].totals.set_memory_bytes(~uint64_t{0});
  tenants::Set(*cluster_, config_.tenants);
  Join(w0_);
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session,
                                TestLeaseRequest(0, 7, 10'000'000'000'000))
                  .ok());
  EXPECT_EQ(Next(session)->refused().reason(), "TOO_LARGE");
  v1::LeaseRequest overflowing = TestLeaseRequest(0, 7, ~uint64_t{0});
  *overflowing.add_contents() = overflowing.contents(0);
  overflowing.mutable_contents(1)->set_hash_low(8);
  ASSERT_TRUE(requests::Request(*cluster_, session, overflowing).ok());
  EXPECT_EQ(Next(session)->refused().reason(), "TOO_LARGE");
}

TEST_F(ClusterTest, SilentWorkerMeansRefusalAndCleanUp) {
  const StreamId session = Open("red");
  const StreamId worker = Join(w0_);
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  EXPECT_THAT(Desired(worker)->leases(), SizeIs(1));
  clock_.Advance(config_.lease_request_timeout);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Next(session)->refused().reason(), "WORKER_UNRESPONSIVE");
  const v1::DesiredState desired = *Desired(worker);
  EXPECT_THAT(desired.leases(), IsEmpty());
  EXPECT_THAT(desired.drop_session_ids(), ElementsAre(session.owner));
}

TEST_F(ClusterTest, PlacementSeesOnlyTheTenantsContents) {
  AddContent("blue", 7, 90'900'000, &w0_);
  v1::WorkerState w1 = TestWorker("w1");
  AddContent("red", 7, 90'900'000, &w1);
  Join(w0_);
  const StreamId stream1 = Join(w1);
  const StreamId session = Open("red");
  ASSERT_TRUE(
      requests::Request(*cluster_, session, TestLeaseRequest(0, 7, 90'900'000))
          .ok());
  Execute(stream1, &w1);
  const v1::LeaseGranted granted = Next(session)->granted();
  EXPECT_EQ(granted.lease().worker_id(), "w1");
  EXPECT_THAT(granted.placement_reason(),
              HasSubstr("holds 90.9 MB of 90.9 MB asked"));
}

TEST_F(ClusterTest, ContentsCountOnce) {
  AddContent("red", 7, 90'900'000, &w0_);
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  v1::LeaseRequest request = TestLeaseRequest(0, 7, 90'900'000);
  while (request.contents_size() < kMaxContentHints) {
    *request.add_contents() = request.contents(0);
  }
  ASSERT_EQ(requests::Request(*cluster_, session, request), absl::OkStatus());
  Execute(worker, &w0_);
  EXPECT_THAT(Next(session)->granted().placement_reason(),
              HasSubstr("holds 90.9 MB of 90.9 MB asked"));
}

TEST_F(ClusterTest, TooManyContentsAreAViolation) {
  const StreamId session = Open("red");
  v1::LeaseRequest request = TestLeaseRequest(0);
  for (int i = 0; i <= kMaxContentHints; ++i) {
    request.add_contents()->set_hash_low(i);
  }
  const absl::Status status = requests::Request(*cluster_, session, request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION");
  EXPECT_THAT(status.message(), HasSubstr("65 contents: at most 64"));
}

TEST_F(ClusterTest, TwoDevicesOfASessionUseTwoWorkers) {
  v1::WorkerState w1 = TestWorker("w1");
  const StreamId stream0 = Join(w0_);
  const StreamId stream1 = Join(w1);
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(1)).ok());
  Execute(stream0, &w0_);
  Execute(stream1, &w1);
  EXPECT_EQ(Next(session)->granted().lease().worker_id(), "w0");
  EXPECT_EQ(Next(session)->granted().lease().worker_id(), "w1");
}

TEST_F(ClusterTest, WorkersHearOfThoseThatTheirSessionsUseBesides) {
  v1::WorkerState w1 = TestWorker("w1"), w2 = TestWorker("w2");
  w1.set_address("unix:/w1");
  const StreamId stream0 = Join(w0_);
  const StreamId stream1 = Join(w1);
  const StreamId stream2 = Join(w2);
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Desired(stream0)->peers_size(), 0);
  EXPECT_EQ(Desired(stream1)->peers_size(), 0);
  EXPECT_EQ(Desired(stream2)->peers_size(), 0);
  // Both workers learn it at once, because the one with the older lease may be
  // asked first.
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(1)).ok());
  const std::optional<v1::DesiredState> first = Desired(stream0);
  const std::optional<v1::DesiredState> second = Desired(stream1);
  ASSERT_TRUE(first.has_value() && second.has_value());
  ASSERT_EQ(first->peers_size(), 1);
  EXPECT_EQ(first->peers(0).worker_id(), "w1");
  EXPECT_EQ(first->peers(0).incarnation(), w1.incarnation());
  EXPECT_EQ(first->peers(0).address(), "unix:/w1");
  ASSERT_EQ(second->peers_size(), 1);
  EXPECT_EQ(second->peers(0).worker_id(), "w0");
  // A worker without the session is not notified.
  EXPECT_FALSE(Desired(stream2).has_value());
  // Workers of other sessions are not either.
  const StreamId other = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, other, TestLeaseRequest(0)).ok());
  EXPECT_EQ(Desired(stream2)->peers_size(), 0);
}

TEST_F(ClusterTest, CloseDropsAtOnceAndOncePerStream) {
  const auto [worker, session, lease] = Granted("red");
  sessions::Close(*cluster_, session);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  v1::DesiredState desired = *Desired(worker);
  EXPECT_THAT(desired.leases(), IsEmpty());
  EXPECT_THAT(desired.drop_session_ids(), ElementsAre(session.owner));
  // An earlier report that still shows the session does not revive it.
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  // The stream has said so already.
  clock_.Advance(config_.heartbeat_interval);
  EXPECT_THAT(Desired(worker)->drop_session_ids(), IsEmpty());
  w0_.clear_sessions();
  w0_.set_applied_revision(desired.revision());
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  clock_.Advance(config_.heartbeat_interval);
  EXPECT_THAT(Desired(worker)->drop_session_ids(), IsEmpty());
}

TEST_F(ClusterTest, BrokenStreamMayComeBackBeforeTheTimeOut) {
  const auto [worker, session, lease] = Granted("red");
  sessions::Detach(*cluster_, session);
  EXPECT_EQ(views::Sessions(*cluster_, {}).items[0].state(),
            v1::SessionInfo::DETACHED);
  clock_.Advance(config_.session_timeout - absl::Seconds(1));
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  coordinator::Tick(*cluster_);
  const StreamId again = Open("red", session.owner);
  EXPECT_EQ(again.owner, session.owner);
  EXPECT_THAT(Metrics(),
              HasSubstr(absl::StrCat(
                  "djinn_recovery_duration_seconds_sum{kind=\"session"
                  "_attached_again\",stage=\"total\"} ",
                  absl::ToInt64Seconds(config_.session_timeout) - 1, "\n")));
  clock_.Advance(config_.session_timeout);
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  coordinator::Tick(*cluster_);
  EXPECT_EQ(views::Leases(*cluster_, {}).items[0].lease_id(), lease.lease_id());
}

TEST_F(ClusterTest, DetachedSessionTimesOut) {
  const auto [worker, session, lease] = Granted("red");
  sessions::Detach(*cluster_, session);
  clock_.Advance(config_.session_timeout);
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  coordinator::Tick(*cluster_);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  EXPECT_THAT(Desired(worker)->drop_session_ids(), ElementsAre(session.owner));
}

TEST_F(ClusterTest, EndedSessionIsNotResumed) {
  const auto [worker, session, lease] = Granted("red");
  sessions::Detach(*cluster_, session);
  clock_.Advance(config_.session_timeout);
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  coordinator::Tick(*cluster_);
  absl::Status status = Attach("red", session.owner).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "SESSION_EXPIRED");
  // The same holds after its worker has executed the drop.
  Execute(worker, &w0_);
  EXPECT_THAT(w0_.sessions(), IsEmpty());
  EXPECT_EQ(ErrorReason(Attach("red", session.owner).status()),
            "SESSION_EXPIRED");
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  // A session that never had a lease has lost nothing.
  const StreamId fresh = Open("red");
  sessions::Detach(*cluster_, fresh);
  clock_.Advance(config_.session_timeout);
  coordinator::Tick(*cluster_);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  EXPECT_EQ(Open("red", fresh.owner).owner, fresh.owner);
  // A restarted coordinator cannot know that.
  Restart();
  EXPECT_EQ(Open("red", session.owner).owner, session.owner);
}

TEST_F(ClusterTest, EndedSessionIsNotAdopted) {
  const auto [worker, session, lease] = Granted("red");
  // Its worker is away for so long that it is forgotten.
  for (const absl::Duration away : {config_.worker_timeout, absl::Hours(24)}) {
    clock_.Advance(away + absl::Seconds(1));
    coordinator::Tick(*cluster_);
  }
  ASSERT_THAT(views::Workers(*cluster_, {}).items, IsEmpty());
  sessions::Close(*cluster_, session);
  w0_.set_applied_revision(0);
  const StreamId back = Join(w0_);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items, IsEmpty());
  EXPECT_THAT(Desired(back)->drop_session_ids(), ElementsAre(session.owner));
}

TEST(SessionTableTest, RemembersTheNewestEndsOfEachTenant) {
  SessionTable table;
  const auto end = [&table](const std::string& tenant, size_t id) {
    Session session;
    session.id = std::to_string(id);
    session.tenant = tenant;
    session.devices.bound.insert(0);
    table.Add(std::move(session));
    table.Remove(std::to_string(id));
  };
  end("blue", SessionTable::kMaxEnded);
  for (size_t id = 0; id < SessionTable::kMaxEnded; ++id) end("red", id);
  EXPECT_TRUE(table.Ended("red", "0"));
  EXPECT_FALSE(table.Ended("blue", "0"));
  end("red", SessionTable::kMaxEnded);
  EXPECT_FALSE(table.Ended("red", "0"));
  EXPECT_TRUE(table.Ended("red", "1"));
  EXPECT_TRUE(table.Ended("blue", std::to_string(SessionTable::kMaxEnded)));
}

TEST_F(ClusterTest, NewStreamReplacesAHalfOpenOne) {
  const auto old_waker = std::make_shared<CountingWaker>();
  const StreamId old =
      sessions::Attach(*cluster_, *tenants_.Find("red"), TestOpen(), old_waker)
          .value();
  const int wakes = old_waker->count;
  const StreamId now = Open("red", old.owner);
  EXPECT_EQ(old_waker->count, wakes + 1);
  EXPECT_EQ(sessions::NextResponse(*cluster_, old).status().code(),
            absl::StatusCode::kAborted);
  // The end of the old stream does not detach the session.
  sessions::Detach(*cluster_, old);
  EXPECT_EQ(views::Sessions(*cluster_, {}).items[0].state(),
            v1::SessionInfo::ATTACHED);
  EXPECT_EQ(Next(now), std::nullopt);
}

TEST_F(ClusterTest, SessionOfAnotherTenantIsRefused) {
  const StreamId session = Open("red");
  EXPECT_EQ(ErrorReason(Attach("blue", session.owner).status()),
            "SESSION_OF_OTHER_TENANT");
  EXPECT_EQ(ErrorReason(Attach("blue", "../../etc").status()),
            "PROTOCOL_VIOLATION");
}

TEST_F(ClusterTest, LostWorkerEndsLeasesAndForgetsThemWhenItReturns) {
  const auto [worker, session, lease] = Granted("red");
  clock_.Advance(config_.worker_timeout + absl::Milliseconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(views::Workers(*cluster_, {}).items[0].state(),
            v1::WorkerInfo::LOST);
  const v1::LeaseEnded ended = Next(session)->ended();
  EXPECT_EQ(ended.lease_id(), lease.lease_id());
  EXPECT_EQ(ended.reason(), "WORKER_LOST");
  EXPECT_EQ(ErrorReason(workers::NextDesiredState(*cluster_, worker).status()),
            "STREAM_REPLACED");

  w0_.set_applied_revision(0);
  const StreamId back = Join(w0_);
  EXPECT_EQ(views::Workers(*cluster_, {}).items[0].state(),
            v1::WorkerInfo::ACTIVE);
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  // The worker is no candidate for the session until it has dropped it.
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  EXPECT_THAT(views::Leases(*cluster_, {}).items, IsEmpty());
  Execute(back, &w0_);
  ASSERT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
  EXPECT_EQ(views::Leases(*cluster_, {}).items[0].session_epoch(), 2u);
}

TEST_F(ClusterTest, RestartedWorkerEndsItsLeases) {
  const auto [worker, session, lease] = Granted("red");
  workers::Leave(*cluster_, worker);
  clock_.Advance(absl::Seconds(2));
  Join(TestWorker("w0", 2));
  EXPECT_EQ(Next(session)->ended().reason(), "WORKER_RESTARTED");
  EXPECT_THAT(Metrics(), HasSubstr("djinn_recovery_duration_seconds_sum{"
                                   "kind=\"worker_restarted\",stage=\"total\"} "
                                   "2\n"));
}

TEST_F(ClusterTest, OfferedLeaseMovesToAnotherWorker) {
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(0)).ok());
  workers::Leave(*cluster_, worker);
  v1::WorkerState w1 = TestWorker("w1");
  const StreamId stream1 = Join(w1);
  v1::WorkerState busy = TestWorker("w0", 2);
  busy.set_queued_runs(10);
  Join(busy);
  Execute(stream1, &w1);
  EXPECT_EQ(Next(session)->granted().lease().worker_id(), "w1");
}

TEST_F(ClusterTest, WorkerIdInUse) {
  const StreamId worker = Join(w0_);
  const absl::Status refused =
      workers::Join(*cluster_, TestWorker("w0", 2), nullptr).status();
  EXPECT_EQ(ErrorReason(refused), "WORKER_ID_IN_USE");
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  // The same process may connect again before its old stream is known to be
  // broken.
  Join(w0_);
  EXPECT_FALSE(workers::NextDesiredState(*cluster_, worker).ok());
  // A stream that is silent for too long does not protect the id.
  clock_.Advance(config_.worker_timeout + absl::Milliseconds(1));
  Join(TestWorker("w0", 2));
}

TEST_F(ClusterTest, ReportsOfOthersAndOfTheFutureAreViolations) {
  const StreamId worker = Join(w0_);
  EXPECT_EQ(ErrorReason(workers::Report(*cluster_, worker, TestWorker("w1"))),
            "PROTOCOL_VIOLATION");
  w0_.set_applied_revision(99);
  EXPECT_EQ(ErrorReason(workers::Report(*cluster_, worker, w0_)),
            "PROTOCOL_VIOLATION");
  v1::WorkerState no_address = TestWorker("w2");
  no_address.clear_address();
  EXPECT_EQ(ErrorReason(workers::Join(*cluster_, no_address, nullptr).status()),
            "PROTOCOL_VIOLATION");
}

TEST_F(ClusterTest, HeartbeatsWhenNothingChanges) {
  const auto waker = std::make_shared<CountingWaker>();
  const StreamId worker = workers::Join(*cluster_, w0_, waker).value();
  EXPECT_EQ(Desired(worker)->revision(), 1u);
  EXPECT_EQ(Desired(worker), std::nullopt);
  const int wakes = waker->count;
  clock_.Advance(config_.heartbeat_interval);
  coordinator::Tick(*cluster_);
  EXPECT_EQ(waker->count, wakes + 1);
  const v1::DesiredState beat = *Desired(worker);
  EXPECT_EQ(beat.revision(), 2u);
}

TEST_F(ClusterTest, RequestsWithoutReadingAnswersEnd) {
  const auto [worker, session, lease] = Granted("red");
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    status = requests::Request(*cluster_, session, TestLeaseRequest(0));
  }
  EXPECT_EQ(ErrorReason(status), "PROTOCOL_VIOLATION");
  EXPECT_EQ(
      ErrorReason(requests::Request(*cluster_, session, TestLeaseRequest(64))),
      "PROTOCOL_VIOLATION");
}

TEST_F(ClusterTest, StopEndsStreamsWithAReason) {
  const StreamId worker = Join(w0_);
  const StreamId session = Open("red");
  coordinator::Stop(*cluster_);
  EXPECT_EQ(sessions::NextResponse(*cluster_, session).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(workers::NextDesiredState(*cluster_, worker).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Attach("red").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace djinn::coordinator
