// Tests the link to the coordinator against a small server of its own.
#include "client_lib/transport/grpc_coordinator_link.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/base/retry_after.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "common/net/server.h"
#include "djinn/v1/session.grpc.pb.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

using testing::ElementsAre;

// A coordinator that grants leases to device 0, refuses others, and receives
// graphs.
class TestSessions : public v1::Session::Service {
 public:
  grpc::Status Attach(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream)
      override {
    if (*ExtractBearer(*context) != "secret") {
      return ToGrpcStatus(MakeError(absl::StatusCode::kUnauthenticated,
                                    "TOKEN_UNKNOWN", "unknown token"));
    }
    v1::SessionRequest request;
    while (stream->Read(&request)) {
      v1::SessionResponse response;
      MutexLock lock(&mu_);
      switch (request.message_case()) {
        case v1::SessionRequest::kOpen:
          resumes_.push_back(request.open().resume_session_id());
          policy_ = request.open().placement_policy();
          urgencies_.push_back(request.open().urgency());
          changed_.SignalAll();
          if (!refusal_.ok()) return ToGrpcStatus(refusal_);
          known_terms_.push_back(request.open().known_term());
          changed_.SignalAll();
          response.set_term(term_);
          response.mutable_opened()->set_session_id(session_id_);
          response.mutable_opened()->set_tenant("tenant");
          response.mutable_opened()->set_max_priority_class(
              v1::PRIORITY_CLASS_INTERACTIVE);
          stream->Write(response);
          break;
        case v1::SessionRequest::kLease:
          ++lease_requests_;
          changed_.SignalAll();
          if (silent_) break;
          if (request.lease().virtual_device() == 0) {
            response.mutable_granted()->mutable_lease()->set_lease_id("l");
          } else if (request.lease().virtual_device() >= kLasting) {
            if (before_ != 0) Grant(std::exchange(before_, 0), stream);
            Grant(request.lease().virtual_device(), stream);
            break;
          } else {
            v1::LeaseRefused* const refused = response.mutable_refused();
            refused->set_virtual_device(request.lease().virtual_device());
            refused->set_code(14);
            refused->set_reason("NO_WORKER");
            refused->set_message("none");
            refused->mutable_retry_after()->set_seconds(7);
          }
          stream->Write(response);
          response.mutable_ended()->set_lease_id("l");
          response.mutable_ended()->set_reason("WORKER_LOST");
          stream->Write(response);
          break;
        case v1::SessionRequest::kReturned:
          returned_.push_back(
              request.returned().lease_id() +
              (request.returned().unreachable() ? " unreachable" : ""));
          changed_.SignalAll();
          break;
        case v1::SessionRequest::kUrgency:
          urgencies_.push_back(request.urgency());
          changed_.SignalAll();
          break;
        case v1::SessionRequest::kGraph:
          ++graphs_;
          changed_.SignalAll();
          if (request.has_stages()) {
            response.mutable_stages()->set_number(request.stages().number());
            stream->Write(response);
          }
          break;
        case v1::SessionRequest::kRecovered:
          // An operator asks back.
          response.mutable_lineage()->set_number(
              request.recovered().replayed_nodes());
          stream->Write(response);
          break;
        case v1::SessionRequest::kClose:
          closed_ = true;
          return grpc::Status::OK;
        default:
          break;
      }
    }
    return grpc::Status::OK;
  }

  // The lowest index of the devices whose leases do not end. GrantTimes() sets
  // how often each of these leases is granted.
  static constexpr uint32_t kLasting = 10;
  void GrantTimes(int times) {
    MutexLock lock(&mu_);
    grants_ = times;
  }
  // Grants the device's lease together with the next one.
  void GrantBefore(uint32_t device) {
    MutexLock lock(&mu_);
    before_ = device;
  }
  std::vector<std::string> WaitForReturned(size_t count) {
    MutexLock lock(&mu_);
    for (Patience patience; returned_.size() < count;)
      patience.Wait(&changed_, &mu_);
    return returned_;
  }
  std::vector<std::string> returned() {
    MutexLock lock(&mu_);
    return returned_;
  }
  void BeSilent(bool silent) {
    MutexLock lock(&mu_);
    silent_ = silent;
  }
  void RefuseToOpen(absl::Status refusal) {
    MutexLock lock(&mu_);
    refusal_ = std::move(refusal);
  }
  void SetTerm(uint64_t term) {
    MutexLock lock(&mu_);
    term_ = term;
  }
  // Returns the terms that clients knew when they attached.
  std::vector<uint64_t> WaitForKnownTerms(size_t count) {
    MutexLock lock(&mu_);
    for (Patience patience; known_terms_.size() < count;)
      patience.Wait(&changed_, &mu_);
    return known_terms_;
  }
  void OpenAs(const std::string& session_id) {
    MutexLock lock(&mu_);
    session_id_ = session_id;
  }
  void WaitForLeaseRequests(int count) {
    MutexLock lock(&mu_);
    for (Patience patience; lease_requests_ < count;)
      patience.Wait(&changed_, &mu_);
  }
  void WaitForGraphs(int count) {
    MutexLock lock(&mu_);
    for (Patience patience; graphs_ < count;) patience.Wait(&changed_, &mu_);
  }
  // Returns the priorities sent with openings and between them.
  std::vector<v1::Urgency> WaitForUrgencies(size_t count) {
    MutexLock lock(&mu_);
    for (Patience patience; urgencies_.size() < count;)
      patience.Wait(&changed_, &mu_);
    return urgencies_;
  }
  std::string policy() {
    MutexLock lock(&mu_);
    return policy_;
  }
  std::vector<std::string> resumes() {
    MutexLock lock(&mu_);
    return resumes_;
  }
  bool closed() {
    MutexLock lock(&mu_);
    return closed_;
  }

 private:
  using Stream =
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>;

  void Grant(uint32_t device, Stream* stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    v1::SessionResponse response;
    v1::LeaseGranted* const granted = response.mutable_granted();
    granted->set_virtual_device(device);
    granted->mutable_lease()->set_lease_id("l" + std::to_string(device));
    for (int i = 0; i < grants_; ++i) stream->Write(response);
  }

  Mutex mu_;
  CondVar changed_;
  int grants_ ABSL_GUARDED_BY(mu_) = 1;
  uint32_t before_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> returned_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Urgency> urgencies_ ABSL_GUARDED_BY(mu_);
  std::string policy_ ABSL_GUARDED_BY(mu_);
  std::string session_id_ ABSL_GUARDED_BY(mu_) = "session";
  uint64_t term_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint64_t> known_terms_ ABSL_GUARDED_BY(mu_);
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int lease_requests_ ABSL_GUARDED_BY(mu_) = 0;
  int graphs_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> resumes_ ABSL_GUARDED_BY(mu_);
};

class Events : public CoordinatorEvents {
 public:
  void OnLeaseEnded(const std::string& lease_id,
                    const std::string& reason) override {
    MutexLock lock(&mu_);
    ended_ = lease_id + " " + reason;
    changed_.SignalAll();
  }
  void OnStages(const v1::StageAnswer& answer) override {
    MutexLock lock(&mu_);
    stages_.push_back(answer);
    changed_.SignalAll();
  }
  uint64_t WaitStages() {
    MutexLock lock(&mu_);
    for (Patience patience; stages_.empty();) patience.Wait(&changed_, &mu_);
    return stages_.back().number();
  }
  void OnMigrationRequested(const v1::MigrationRequest& request) override {
    MutexLock lock(&mu_);
    ended_ = "migrate from " + request.from_lease_id();
    changed_.SignalAll();
  }
  void OnLineageAsked(const v1::LineageQuestion& question) override {
    MutexLock lock(&mu_);
    ended_ = absl::StrCat("lineage ", question.number());
    changed_.SignalAll();
  }
  void OnAttachedAgain() override { ++attached_again; }
  std::atomic<int> attached_again{0};

  std::string WaitEnded() {
    MutexLock lock(&mu_);
    for (Patience patience; ended_.empty();) patience.Wait(&changed_, &mu_);
    return ended_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<v1::StageAnswer> stages_ ABSL_GUARDED_BY(mu_);
  std::string ended_ ABSL_GUARDED_BY(mu_);
};

class GrpcCoordinatorLinkTest : public testing::Test {
 protected:
  GrpcCoordinatorLinkTest() {
    // The folder is not the test's own, because a socket's path must be short.
    char folder[] = "/tmp/djinn-links-XXXXXX";
    folder_ = mkdtemp(folder);
    Serve();
  }
  ~GrpcCoordinatorLinkTest() override {
    link_.reset();
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
    std::filesystem::remove_all(folder_);
  }

  std::string address() const {
    return "unix:" + folder_ + "/coordinator.sock";
  }
  void Serve() {
    server_ = *Server::Start({address(), false, {&service_}, {}});
  }
  void Kill() {
    server_->Shutdown(absl::ZeroDuration());
    server_.reset();
  }
  absl::Status Open(const std::string& token = "secret",
                    absl::Duration timeout = absl::Seconds(20),
                    std::string policy = "") {
    link_ = *MakeGrpcCoordinatorLink(address(), token,
                                     {.placement_policy = std::move(policy)});
    return link_->Open("program", timeout, &events_).status();
  }
  absl::StatusOr<v1::LeaseGranted> Request(
      int device, absl::Duration timeout = absl::Seconds(20)) {
    v1::LeaseRequest request;
    request.set_virtual_device(device);
    return link_->RequestLease(request, timeout);
  }

  std::string folder_;
  TestSessions service_;
  std::unique_ptr<Server> server_;
  Events events_;
  std::unique_ptr<CoordinatorLink> link_;
};

TEST_F(GrpcCoordinatorLinkTest, OpensAsksAndCloses) {
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Request(0)->lease().lease_id(), "l");
  EXPECT_EQ(events_.WaitEnded(), "l WORKER_LOST");
  const absl::Status refused = Request(1).status();
  EXPECT_EQ(ErrorReason(refused), "NO_WORKER");
  EXPECT_EQ(RetryAfter(refused), absl::Seconds(7));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  link_->SendGraph({}, {}, std::nullopt);
  EXPECT_TRUE(link_->Close(absl::Seconds(20)).ok());
  // The link sends queued graphs before the farewell.
  service_.WaitForGraphs(1);
  EXPECT_TRUE(service_.closed());
}

// Another coordinator, at an address of its own.
class SecondCoordinator {
 public:
  explicit SecondCoordinator(const std::string& address)
      : server_(*Server::Start({address, false, {&service_}, {}})) {}
  ~SecondCoordinator() { server_->Shutdown(absl::ZeroDuration()); }
  TestSessions* operator->() { return &service_; }

 private:
  TestSessions service_;
  const std::unique_ptr<Server> server_;
};

absl::Status NotLeader(const std::string& leader) {
  return MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER", "follows",
                   {{"leader", leader}});
}

TEST_F(GrpcCoordinatorLinkTest, GoesOnWithTheCoordinatorThatLeads) {
  const std::string other = "unix:" + folder_ + "/other.sock";
  SecondCoordinator second(other);
  service_.RefuseToOpen(NotLeader(other));
  link_ = *MakeGrpcCoordinatorLink(address() + ", " + other, "secret");
  ASSERT_TRUE(link_->Open("program", absl::Seconds(20), &events_).ok());
  EXPECT_EQ(Request(10)->lease().lease_id(), "l10");
  EXPECT_EQ(second->resumes(), std::vector<std::string>{""});
  // A link that knows one follower only cannot open.
  EXPECT_EQ(ErrorReason(Open("secret", absl::Milliseconds(200))),
            "COORDINATOR_UNREACHABLE");
}

TEST_F(GrpcCoordinatorLinkTest, ALinkAttachesElsewhereAndIgnoresEarlierTerms) {
  const std::string other = "unix:" + folder_ + "/other.sock";
  service_.SetTerm(7);
  auto second = std::make_unique<SecondCoordinator>(other);
  link_ = *MakeGrpcCoordinatorLink(address() + "," + other, "secret");
  ASSERT_TRUE(link_->Open("program", absl::Seconds(20), &events_).ok());
  // The second one led before the first one did.
  (*second)->SetTerm(6);
  Kill();
  EXPECT_EQ((*second)->WaitForKnownTerms(2).back(), 7u);
  EXPECT_EQ(events_.attached_again, 0);
  // Elected again, it is believed.
  (*second)->SetTerm(8);
  EXPECT_EQ(Request(10)->lease().lease_id(), "l10");
  EXPECT_EQ(events_.attached_again, 1);
  link_.reset();
}

TEST_F(GrpcCoordinatorLinkTest, GivesLeasesBackOnEveryStream) {
  ASSERT_TRUE(Open().ok());
  ASSERT_EQ(Request(10)->lease().lease_id(), "l10");
  ASSERT_EQ(Request(11)->lease().lease_id(), "l11");
  link_->ReturnLease("l10", /*unreachable=*/true);
  link_->ReturnLease("l10", /*unreachable=*/true);
  link_->ReturnLease("another's", /*unreachable=*/false);
  EXPECT_THAT(service_.WaitForReturned(1), ElementsAre("l10 unreachable"));
  // Imitates another coordinator.
  Kill();
  Serve();
  link_->ReturnLease("l11", /*unreachable=*/false);
  EXPECT_THAT(service_.WaitForReturned(3),
              ElementsAre("l10 unreachable", "l10 unreachable", "l11"));
}

TEST_F(GrpcCoordinatorLinkTest, EndedLeaseIsNotReturned) {
  ASSERT_TRUE(Open().ok());
  ASSERT_EQ(Request(0)->lease().lease_id(), "l");
  EXPECT_EQ(events_.WaitEnded(), "l WORKER_LOST");
  link_->ReturnLease("l", /*unreachable=*/false);
  EXPECT_TRUE(link_->Close(absl::Seconds(20)).ok());
  EXPECT_TRUE(service_.returned().empty());
}

TEST_F(GrpcCoordinatorLinkTest, LeaseGrantedAfterItsTimeoutIsReturned) {
  ASSERT_TRUE(Open().ok());
  // The second answer is about a lease that is in use, and must not return it.
  service_.GrantTimes(2);
  ASSERT_EQ(Request(10)->lease().lease_id(), "l10");
  service_.BeSilent(true);
  EXPECT_EQ(ErrorReason(Request(11, absl::Milliseconds(50)).status()),
            "LEASE_TIMEOUT");
  service_.WaitForLeaseRequests(2);
  service_.BeSilent(false);
  service_.GrantBefore(11);
  ASSERT_EQ(Request(12)->lease().lease_id(), "l12");
  EXPECT_THAT(service_.WaitForReturned(1), ElementsAre("l11"));
  EXPECT_TRUE(link_->Close(absl::Seconds(20)).ok());
  EXPECT_THAT(service_.returned(), ElementsAre("l11"));
}

TEST_F(GrpcCoordinatorLinkTest, GraphMayCarryAStageRequest) {
  ASSERT_TRUE(Open().ok());
  v1::StageRequest request;
  request.set_number(17);
  link_->SendGraph({}, {}, request);
  EXPECT_EQ(events_.WaitStages(), 17u);
}

TEST_F(GrpcCoordinatorLinkTest, SendsReportsAndReceivesQuestionsOfOperators) {
  ASSERT_TRUE(Open().ok());
  v1::SessionRequest report;
  report.mutable_recovered()->set_replayed_nodes(5);
  link_->Report(std::move(report));
  EXPECT_EQ(events_.WaitEnded(), "lineage 5");
}

TEST_F(GrpcCoordinatorLinkTest, MayAttachToASessionThatIsOpenElsewhere) {
  link_ =
      *MakeGrpcCoordinatorLink(address(), "secret", {.session_id = "session"});
  ASSERT_TRUE(link_->Open("program", absl::Seconds(20), &events_).ok());
  EXPECT_EQ(service_.resumes(), std::vector<std::string>{"session"});
}

TEST_F(GrpcCoordinatorLinkTest, SendsThePriorityOfTheSession) {
  v1::Urgency batch, hurried;
  batch.set_priority_class(v1::PRIORITY_CLASS_BATCH);
  hurried.mutable_run_deadline()->set_seconds(1);
  const auto urgency = std::make_shared<SessionUrgency>(batch);
  link_ = *MakeGrpcCoordinatorLink(address(), "secret", {.urgency = urgency});
  ASSERT_TRUE(link_->Open("program", absl::Seconds(20), &events_).ok());
  EXPECT_EQ(service_.WaitForUrgencies(1)[0].priority_class(),
            v1::PRIORITY_CLASS_BATCH);
  EXPECT_EQ(urgency->Set(hurried)->priority_class(), v1::PRIORITY_CLASS_BATCH);
  EXPECT_EQ(service_.WaitForUrgencies(2)[1].run_deadline().seconds(), 1);
  v1::Urgency too_high;
  too_high.set_priority_class(v1::PRIORITY_CLASS_REALTIME);
  const absl::Status refused = urgency->Set(too_high).status();
  EXPECT_EQ(ErrorReason(refused), "PRIORITY_NOT_ALLOWED");
  EXPECT_EQ(refused.message(),
            "sessions of this tenant may have priority interactive at most, "
            "realtime was asked");
  // The next coordinator receives the last priority.
  Kill();
  Serve();
  EXPECT_EQ(service_.WaitForUrgencies(3)[2].run_deadline().seconds(), 1);
  // The listener is gone.
  link_.reset();
  EXPECT_TRUE(urgency->Set(batch).ok());
}

TEST_F(GrpcCoordinatorLinkTest, SaysHowTheSessionIsPlaced) {
  EXPECT_EQ(ErrorReason(Open("secret", absl::Seconds(20), "minimize_cost")),
            "");
  EXPECT_EQ(service_.policy(), "minimize_cost");
}

TEST_F(GrpcCoordinatorLinkTest, AWrongTokenIsNotRetried) {
  EXPECT_EQ(ErrorReason(Open("wrong")), "TOKEN_UNKNOWN");
}

TEST_F(GrpcCoordinatorLinkTest, UnreachableCoordinatorFailsOpenInTime) {
  Kill();
  const absl::Status status = Open("secret", absl::Milliseconds(100));
  EXPECT_EQ(ErrorReason(status), "COORDINATOR_UNREACHABLE");
  EXPECT_NE(status.message().find(address()), std::string::npos);
}

TEST_F(GrpcCoordinatorLinkTest, AttachesAgainToARestartedCoordinator) {
  ASSERT_TRUE(Open().ok());
  service_.BeSilent(true);
  absl::StatusOr<v1::LeaseGranted> granted = absl::UnknownError("");
  std::thread asker([&] { granted = Request(0); });
  service_.WaitForLeaseRequests(1);
  Kill();
  service_.BeSilent(false);
  Serve();
  // The link repeats the request on the new stream.
  asker.join();
  EXPECT_TRUE(granted.ok()) << granted.status();
  EXPECT_EQ(service_.resumes(), (std::vector<std::string>{"", "session"}));
  EXPECT_EQ(events_.attached_again, 1);
  EXPECT_TRUE(link_->Close(absl::Seconds(20)).ok());
}

TEST_F(GrpcCoordinatorLinkTest, GivesUpWhereAnotherAttemptChangesNothing) {
  for (const absl::Status& refusal :
       {MakeError(absl::StatusCode::kAborted, "SESSION_ATTACHED_ELSEWHERE",
                  "a newer stream"),
        MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_EXPIRED",
                  "too late"),
        MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN", "who"),
        MakeError(absl::StatusCode::kPermissionDenied,
                  "SESSION_OF_OTHER_TENANT", "not yours")}) {
    service_.RefuseToOpen(absl::OkStatus());
    ASSERT_TRUE(Open().ok());
    Kill();
    service_.RefuseToOpen(refusal);
    Serve();
    EXPECT_EQ(ErrorReason(Request(0).status()), ErrorReason(refusal));
    const size_t attempts = service_.resumes().size();
    EXPECT_EQ(ErrorReason(Request(1).status()), ErrorReason(refusal));
    EXPECT_EQ(ErrorReason(link_->Close(absl::Seconds(20))),
              ErrorReason(refusal));
    EXPECT_EQ(service_.resumes().size(), attempts);
    link_.reset();
  }
}

TEST_F(GrpcCoordinatorLinkTest, AnotherSessionThanAskedForIsABreach) {
  ASSERT_TRUE(Open().ok());
  Kill();
  service_.OpenAs("other session");
  Serve();
  EXPECT_EQ(ErrorReason(Request(0).status()), "PROTOCOL_VIOLATION");
}

TEST_F(GrpcCoordinatorLinkTest, ALeaseRequestEndsAtItsDeadline) {
  ASSERT_TRUE(Open().ok());
  Kill();
  EXPECT_EQ(ErrorReason(Request(0, absl::Milliseconds(50)).status()),
            "LEASE_TIMEOUT");
}

TEST_F(GrpcCoordinatorLinkTest, CancelledRequestsReturn) {
  ASSERT_TRUE(Open().ok());
  service_.BeSilent(true);
  absl::StatusOr<v1::LeaseGranted> granted = absl::UnknownError("");
  std::thread asker([&] { granted = Request(0); });
  service_.WaitForLeaseRequests(1);
  link_->CancelRequests();
  asker.join();
  EXPECT_TRUE(absl::IsCancelled(granted.status()));
}

TEST_F(GrpcCoordinatorLinkTest, CancelledOpenReturns) {
  Kill();
  link_ = *MakeGrpcCoordinatorLink(address(), "secret");
  link_->CancelRequests();
  EXPECT_EQ(
      ErrorReason(
          link_->Open("program", absl::InfiniteDuration(), &events_).status()),
      "COORDINATOR_UNREACHABLE");
}

TEST_F(GrpcCoordinatorLinkTest, ClosingWithoutACoordinatorSaysSo) {
  ASSERT_TRUE(Open().ok());
  Kill();
  // When the request times out, the link has noticed that its stream broke. A
  // farewell written earlier would count as sent.
  EXPECT_FALSE(Request(0, absl::Milliseconds(200)).ok());
  EXPECT_EQ(ErrorReason(link_->Close(absl::Milliseconds(50))),
            "COORDINATOR_UNREACHABLE");
}

}  // namespace
}  // namespace djinn
