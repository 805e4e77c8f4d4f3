// Tests which link a session uses when the cluster has no worker, with fakes in
// place of both coordinators.
#include "client_lib/cluster/local_fallback.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

absl::Status NoWorker() {
  return MakeError(absl::StatusCode::kUnavailable, "NO_WORKER",
                   "there is no worker");
}

// Holds the answers of a fake coordinator, and what it was told. Thread-safe.
struct Coordinator {
  mutable Mutex mu;
  CondVar changed;
  absl::Status opens ABSL_GUARDED_BY(mu);
  // Why there is no worker; OK: it grants one.
  absl::Status refusal ABSL_GUARDED_BY(mu);
  std::string worker ABSL_GUARDED_BY(mu) = "w0";
  uint64_t incarnation ABSL_GUARDED_BY(mu) = 1;
  int leases ABSL_GUARDED_BY(mu) = 0;
  int asked ABSL_GUARDED_BY(mu) = 0;
  // The device of the last request.
  uint32_t device ABSL_GUARDED_BY(mu) = 0;
  std::vector<std::string> returned ABSL_GUARDED_BY(mu);
  std::vector<v1::SessionRequest> reports ABSL_GUARDED_BY(mu);
  // The sessions of attempts to open one again.
  std::vector<std::string> reopened ABSL_GUARDED_BY(mu);
  // Number of attempts to open one that were refused for their token.
  int refused_opens ABSL_GUARDED_BY(mu) = 0;
  bool closed ABSL_GUARDED_BY(mu) = false;

  void Refuse(absl::Status why) {
    MutexLock lock(&mu);
    refusal = std::move(why);
  }
  // Lets attempts to open a session end in this way.
  void Answer(absl::Status status) {
    MutexLock lock(&mu);
    opens = std::move(status);
  }
  void AwaitAsked(int more) {
    MutexLock lock(&mu);
    const int until = asked + more;
    for (Patience patience; asked < until;) patience.Wait(&changed, &mu);
  }
  std::vector<std::string> AwaitReopened(size_t count) {
    MutexLock lock(&mu);
    for (Patience patience; reopened.size() < count;) {
      patience.Wait(&changed, &mu);
    }
    return reopened;
  }
  std::vector<std::string> AwaitReturned(size_t count) {
    MutexLock lock(&mu);
    for (Patience patience; returned.size() < count;) {
      patience.Wait(&changed, &mu);
    }
    return returned;
  }
};

class FakeLink : public CoordinatorLink {
 public:
  FakeLink(std::string name, std::shared_ptr<Coordinator> coordinator)
      : name_(std::move(name)), c_(std::move(coordinator)) {}

  absl::StatusOr<Opened> Open(const std::string&, absl::Duration,
                              CoordinatorEvents*) override {
    MutexLock lock(&c_->mu);
    c_->refused_opens += absl::IsUnauthenticated(c_->opens);
    c_->changed.SignalAll();
    if (!c_->opens.ok()) return c_->opens;
    return Opened{name_ + "-session", name_ + "-tenant"};
  }
  absl::StatusOr<v1::LeaseGranted> RequestLease(v1::LeaseRequest request,
                                                absl::Duration) override {
    MutexLock lock(&c_->mu);
    ++c_->asked;
    c_->device = request.virtual_device();
    c_->changed.SignalAll();
    if (!c_->refusal.ok()) return c_->refusal;
    v1::LeaseGranted granted;
    granted.set_virtual_device(request.virtual_device());
    granted.set_placement_reason("has room");
    granted.mutable_lease()->set_lease_id(
        absl::StrCat(name_, "-lease-", ++c_->leases));
    granted.mutable_lease()->set_worker_id(c_->worker);
    granted.mutable_lease()->set_worker_incarnation(c_->incarnation);
    return granted;
  }
  void ReturnLease(const std::string& lease_id, bool unreachable) override {
    MutexLock lock(&c_->mu);
    c_->returned.push_back(
        absl::StrCat(lease_id, unreachable ? " unreachable" : ""));
    c_->changed.SignalAll();
  }
  void SendGraph(v1::Graph, v1::GraphNotes,
                 std::optional<v1::StageRequest>) override {}
  void ReportMigration(uint32_t, v1::MigrationOutcome) override {}
  void Report(v1::SessionRequest report) override {
    MutexLock lock(&c_->mu);
    c_->reports.push_back(std::move(report));
  }
  void CancelRequests() override {}
  absl::Status Close(absl::Duration) override {
    MutexLock lock(&c_->mu);
    c_->closed = true;
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const std::shared_ptr<Coordinator> c_;
};

// Returns an error that names the cluster.
class FakeConnector : public WorkerConnector {
 public:
  explicit FakeConnector(std::string name) : name_(std::move(name)) {}
  absl::StatusOr<std::unique_ptr<ClientStream>> Connect(
      const v1::Lease&, const std::string&) override {
    return absl::UnavailableError(name_);
  }

 private:
  const std::string name_;
};

class Events : public CoordinatorEvents {
 public:
  void OnLeaseEnded(const std::string& lease_id,
                    const std::string& reason) override {
    MutexLock lock(&mu_);
    ended_.push_back(absl::StrCat(lease_id, " ", reason));
    changed_.SignalAll();
  }
  void OnMigrationRequested(const v1::MigrationRequest&) override {}
  void OnStages(const v1::StageAnswer&) override {}
  void OnLineageAsked(const v1::LineageQuestion&) override {}
  void OnAttachedAgain() override {
    MutexLock lock(&mu_);
    attached_again_ = true;
  }

  bool attached_again() {
    MutexLock lock(&mu_);
    return attached_again_;
  }
  // Waits for the next end of a lease.
  std::string WaitEnded() {
    MutexLock lock(&mu_);
    for (Patience patience; ended_.empty();) patience.Wait(&changed_, &mu_);
    std::string ended = std::move(ended_.front());
    ended_.pop_front();
    return ended;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mu_);
  bool attached_again_ ABSL_GUARDED_BY(mu_) = false;
};

class LocalFallbackTest : public testing::Test {
 protected:
  LocalFallbackTest() {
    {
      MutexLock lock(&local_->mu);
      local_->worker = "local-0";
    }
    Link(absl::Seconds(10));
  }
  ~LocalFallbackTest() override {
    // No callback may come after the events are destroyed.
    (void)links_.link->Close(absl::ZeroDuration());
  }

  // Makes new links.
  void Link(absl::Duration offer_life) {
    links_ = WithFallback(
        std::make_unique<FakeLink>("cluster", cluster_),
        std::make_unique<FakeConnector>("to the cluster"),
        {.return_interval = absl::Milliseconds(1),
         .worker_threads = 4,
         .start = [this](const std::string& session_id, int threads,
                         absl::Duration) -> absl::StatusOr<LocalCluster> {
           ++starts_;
           started_for_ = session_id;
           threads_ = threads;
           if (!start_error_.ok()) return start_error_;
           return LocalCluster{
               nullptr, std::make_unique<FakeLink>("local", local_),
               std::make_unique<FakeConnector>("to this machine")};
         },
         .reopen = [this](const std::string& session_id)
             -> absl::StatusOr<std::unique_ptr<CoordinatorLink>> {
           MutexLock lock(&cluster_->mu);
           cluster_->reopened.push_back(session_id);
           cluster_->changed.SignalAll();
           return std::make_unique<FakeLink>("cluster", cluster_);
         },
         .offer_life = offer_life});
  }

  void Open() {
    ASSERT_TRUE(
        links_.link->Open("program", absl::InfiniteDuration(), &events_).ok());
  }
  absl::StatusOr<v1::LeaseGranted> Request(uint32_t device = 0,
                                           const std::string& numerics = "") {
    v1::LeaseRequest request;
    request.set_virtual_device(device);
    request.set_numerics(numerics);
    return links_.link->RequestLease(request, absl::Minutes(10));
  }
  std::string WhereTo(const v1::LeaseGranted& granted) {
    return std::string(links_.connector->Connect(granted.lease(), "session")
                           .status()
                           .message());
  }

  Events events_;
  std::shared_ptr<Coordinator> cluster_ = std::make_shared<Coordinator>();
  std::shared_ptr<Coordinator> local_ = std::make_shared<Coordinator>();
  int starts_ = 0;
  std::string started_for_;
  int threads_ = 0;
  absl::Status start_error_;
  FallbackLinks links_;
};

TEST_F(LocalFallbackTest, ClusterWithAWorkerStartsNothing) {
  Open();
  const auto granted = Request();
  ASSERT_TRUE(granted.ok());
  EXPECT_EQ(granted->lease().worker_id(), "w0");
  EXPECT_EQ(WhereTo(*granted), "to the cluster");
  EXPECT_EQ(starts_, 0);
}

TEST_F(LocalFallbackTest, ClusterWithoutAWorkerLeadsHereAndSaysSo) {
  Open();
  cluster_->Refuse(NoWorker());
  const auto granted = Request();
  ASSERT_TRUE(granted.ok()) << granted.status();
  EXPECT_EQ(granted->lease().worker_id(), "local-0");
  EXPECT_THAT(granted->placement_reason(), StartsWith(kLocalReason));
  EXPECT_THAT(granted->placement_reason(), HasSubstr("NO_WORKER"));
  EXPECT_EQ(WhereTo(*granted), "to this machine");
  EXPECT_EQ(started_for_, "cluster-session");
  MutexLock lock(&cluster_->mu);
  ASSERT_EQ(cluster_->reports.size(), 1u);
  const v1::RecoveryReport& report = cluster_->reports[0].recovered();
  EXPECT_EQ(report.kind(), v1::RecoveryReport::LOCAL_FALLBACK);
  EXPECT_EQ(report.to_worker_id(), "local-0");
  EXPECT_EQ(report.cause().reason(), "NO_WORKER");
}

TEST_F(LocalFallbackTest, TwoDevicesShareTheLocalWorker) {
  Open();
  cluster_->Refuse(NoWorker());
  ASSERT_TRUE(Request(0).ok());
  ASSERT_TRUE(Request(1).ok());
  EXPECT_EQ(starts_, 1);
}

TEST_F(LocalFallbackTest, LocalWorkersHaveTheThreadsOfTheLostOnes) {
  Open();
  cluster_->Refuse(NoWorker());
  ASSERT_TRUE(Request(0, "cpu-00ff-1").ok());
  EXPECT_EQ(threads_, 1);
  ASSERT_TRUE(Request(1, "cpu-00ff-1").ok());
  EXPECT_EQ(starts_, 1);
  const auto other = Request(2, "cpu-00ff-12");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(threads_, 12);
  // Numerics without a number of threads get the program's number.
  ASSERT_TRUE(Request(3, "").ok());
  EXPECT_EQ(threads_, 4);
  ASSERT_TRUE(Request(4, "cpu-").ok());
  ASSERT_TRUE(Request(5, "gpu-7").ok());
  EXPECT_EQ(starts_, 3);
  links_.link->ReturnLease(other->lease().lease_id(), false);
  EXPECT_THAT(local_->AwaitReturned(1),
              testing::Contains(other->lease().lease_id()));
}

TEST_F(LocalFallbackTest, RefusalForAnotherReasonStays) {
  Open();
  cluster_->Refuse(MakeError(absl::StatusCode::kInvalidArgument,
                             "POLICY_UNKNOWN", "no such policy"));
  EXPECT_EQ(ErrorReason(Request().status()), "POLICY_UNKNOWN");
  EXPECT_EQ(starts_, 0);
}

TEST_F(LocalFallbackTest, WithoutALocalWorkerTheClustersErrorStays) {
  Open();
  cluster_->Refuse(NoWorker());
  start_error_ = absl::NotFoundError("no such program");
  const absl::Status status = Request().status();
  EXPECT_EQ(ErrorReason(status), "NO_WORKER");
  EXPECT_THAT(status.message(), HasSubstr("no such program"));
}

TEST_F(LocalFallbackTest, DeadLocalWorkerIsStartedAgain) {
  Open();
  cluster_->Refuse(NoWorker());
  local_->Refuse(NoWorker());
  EXPECT_FALSE(Request().ok());
  EXPECT_EQ(starts_, 2);
}

TEST_F(LocalFallbackTest, DeviceGoesBackWhenTheClusterHasAWorker) {
  Open();
  cluster_->Refuse(NoWorker());
  const auto here = Request();
  ASSERT_TRUE(here.ok());
  cluster_->AwaitAsked(2);
  cluster_->Refuse(absl::OkStatus());
  EXPECT_EQ(events_.WaitEnded(),
            absl::StrCat(here->lease().lease_id(), " ", kFallbackEnded));
  const auto there = Request();
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(there->lease().worker_id(), "w0");
  EXPECT_EQ(WhereTo(*there), "to the cluster");
  EXPECT_THAT(local_->AwaitReturned(1), ElementsAre(here->lease().lease_id()));
}

TEST_F(LocalFallbackTest, DeviceThatComesBackAtOnceGetsNoFurtherOffer) {
  Open();
  cluster_->Refuse(NoWorker());
  ASSERT_TRUE(Request(0).ok());
  cluster_->Refuse(absl::OkStatus());
  EXPECT_THAT(events_.WaitEnded(), HasSubstr(kFallbackEnded));
  const auto there = Request(0);
  ASSERT_TRUE(there.ok());
  // It cannot go on there.
  links_.link->ReturnLease(there->lease().lease_id(), true);
  cluster_->Refuse(NoWorker());
  ASSERT_EQ(Request(0)->lease().worker_id(), "local-0");
  // Another device is asked for again and again, this one is not.
  ASSERT_EQ(Request(1)->lease().worker_id(), "local-0");
  cluster_->AwaitAsked(3);
  MutexLock lock(&cluster_->mu);
  EXPECT_EQ(cluster_->device, 1u);
}

TEST_F(LocalFallbackTest, DeviceWhoseOfferHasGoneMayComeBackOnceToo) {
  Link(/*offer_life=*/absl::ZeroDuration());
  Open();
  cluster_->Refuse(NoWorker());
  ASSERT_TRUE(Request(0).ok());
  cluster_->Refuse(absl::OkStatus());
  EXPECT_THAT(events_.WaitEnded(), HasSubstr(kFallbackEnded));
  cluster_->AwaitReturned(1);
  // The device has left by now, and asks for another lease.
  const auto there = Request(0);
  ASSERT_TRUE(there.ok());
  ASSERT_EQ(there->lease().worker_id(), "w0");
  links_.link->ReturnLease(there->lease().lease_id(), true);
  cluster_->Refuse(NoWorker());
  ASSERT_EQ(Request(0)->lease().worker_id(), "local-0");
  ASSERT_EQ(Request(1)->lease().worker_id(), "local-0");
  for (int i = 0; i < 5; ++i) {
    cluster_->AwaitAsked(1);
    MutexLock lock(&cluster_->mu);
    EXPECT_EQ(cluster_->device, 1u);
  }
}

TEST_F(LocalFallbackTest, LocalDeviceGetsNoFurtherWorkers) {
  Open();
  cluster_->Refuse(NoWorker());
  ASSERT_TRUE(Request(0).ok());
  v1::LeaseRequest member;
  member.set_member(1);
  EXPECT_EQ(
      ErrorReason(links_.link->RequestLease(member, absl::Minutes(1)).status()),
      "NO_CAPACITY");
  cluster_->Refuse(absl::OkStatus());
  member.set_virtual_device(1);
  EXPECT_TRUE(links_.link->RequestLease(member, absl::Minutes(1)).ok());
}

TEST_F(LocalFallbackTest, DeviceWithSeveralWorkersStaysInTheCluster) {
  Open();
  ASSERT_TRUE(Request(0).ok());
  v1::LeaseRequest member;
  member.set_member(1);
  ASSERT_TRUE(links_.link->RequestLease(member, absl::Minutes(1)).ok());
  cluster_->Refuse(NoWorker());
  EXPECT_EQ(Request(0).status(), NoWorker());
  EXPECT_EQ(starts_, 0);
}

TEST_F(LocalFallbackTest, ProcessThatWasNotReachedTwiceIsNotTakenAThirdTime) {
  Open();
  for (int i = 0; i < 2; ++i) {
    const auto granted = Request();
    ASSERT_TRUE(granted.ok());
    ASSERT_EQ(granted->lease().worker_id(), "w0") << i;
    links_.link->ReturnLease(granted->lease().lease_id(), true);
  }
  const auto here = Request();
  ASSERT_TRUE(here.ok());
  EXPECT_EQ(here->lease().worker_id(), "local-0");
  EXPECT_THAT(here->placement_reason(), HasSubstr("WORKER_UNREACHABLE"));
  // Its next process is another one.
  {
    MutexLock lock(&cluster_->mu);
    cluster_->incarnation = 2;
  }
  EXPECT_THAT(events_.WaitEnded(), HasSubstr(kFallbackEnded));
  EXPECT_EQ(Request()->lease().worker_id(), "w0");
}

TEST_F(LocalFallbackTest, ClusterThatIsAwayGetsTheSessionWhenItIsBack) {
  cluster_->Answer(MakeError(absl::StatusCode::kUnavailable,
                             "COORDINATOR_UNREACHABLE", "away"));
  const auto opened =
      links_.link->Open("program", absl::InfiniteDuration(), &events_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->session_id, "local-session");
  EXPECT_EQ(started_for_, "");
  const auto here = Request();
  ASSERT_TRUE(here.ok());
  EXPECT_EQ(here->lease().worker_id(), "local-0");
  EXPECT_THAT(here->placement_reason(), HasSubstr("COORDINATOR_UNREACHABLE"));
  EXPECT_THAT(cluster_->AwaitReopened(2),
              testing::Each(std::string("local-session")));
  {
    MutexLock lock(&cluster_->mu);
    EXPECT_EQ(cluster_->asked, 0);
    EXPECT_THAT(cluster_->reports, IsEmpty());
  }
  cluster_->Answer(absl::OkStatus());
  EXPECT_EQ(events_.WaitEnded(),
            absl::StrCat(here->lease().lease_id(), " ", kFallbackEnded));
  EXPECT_TRUE(events_.attached_again());
  const auto there = Request();
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(there->lease().worker_id(), "w0");
  EXPECT_EQ(WhereTo(*there), "to the cluster");
  EXPECT_TRUE(links_.link->Close(absl::Seconds(1)).ok());
  MutexLock lock(&cluster_->mu);
  ASSERT_EQ(cluster_->reports.size(), 1u);
  EXPECT_EQ(cluster_->reports[0].recovered().kind(),
            v1::RecoveryReport::LOCAL_FALLBACK);
  EXPECT_EQ(cluster_->reports[0].recovered().cause().reason(),
            "COORDINATOR_UNREACHABLE");
  EXPECT_TRUE(cluster_->closed);
}

TEST_F(LocalFallbackTest, ClusterThatRefusesTheSessionIsNotTriedAgain) {
  cluster_->Answer(absl::UnavailableError("away"));
  ASSERT_TRUE(
      links_.link->Open("program", absl::InfiniteDuration(), &events_).ok());
  cluster_->Answer(
      MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN", "who?"));
  {
    MutexLock lock(&cluster_->mu);
    for (Patience patience; cluster_->refused_opens == 0;) {
      patience.Wait(&cluster_->changed, &cluster_->mu);
    }
  }
  EXPECT_EQ(Request()->lease().worker_id(), "local-0");
  EXPECT_TRUE(links_.link->Close(absl::Seconds(1)).ok());
  MutexLock lock(&cluster_->mu);
  EXPECT_EQ(cluster_->refused_opens, 1);
  EXPECT_FALSE(cluster_->closed);
}

TEST_F(LocalFallbackTest, RefusedSessionIsAnError) {
  for (const absl::Status& refusal :
       {MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN", "who?"),
        MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
                  "two are open")}) {
    cluster_->Answer(refusal);
    EXPECT_EQ(links_.link->Open("program", absl::InfiniteDuration(), &events_)
                  .status(),
              refusal);
  }
  EXPECT_EQ(starts_, 0);
}

TEST_F(LocalFallbackTest, CloseEndsBothSessions) {
  Open();
  cluster_->Refuse(NoWorker());
  ASSERT_TRUE(Request().ok());
  EXPECT_TRUE(links_.link->Close(absl::Seconds(1)).ok());
  {
    MutexLock lock(&local_->mu);
    EXPECT_TRUE(local_->closed);
  }
  MutexLock lock(&cluster_->mu);
  EXPECT_TRUE(cluster_->closed);
}

}  // namespace
}  // namespace djinn
