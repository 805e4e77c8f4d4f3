// Tests calls of operators: their roles, the audit, and runs.
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "common/lease/lease_verifier.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/server/coordinator.h"
#include "coordinator/server/coordinator_fixture.h"
#include "coordinator/testing/testing.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "djinn/v1/worker_registry.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Plays an operator's call that waits for a worker.
class RunsCallTest : public CoordinatorTest {
 protected:
  RunsCallTest() {
    state_ = TestWorker("w0");
    worker_ = Synchronize("join-token");
    worker_->Send(state_);
    worker_->Read();
    session_ = Open("red-token", &session_id_);
    session_->Send(AskLease(0));
    const v1::DesiredState desired = worker_->Read();
    state_.set_applied_revision(desired.revision());
    *state_.add_sessions()->mutable_lease() = desired.leases(0);
    worker_->Send(state_);
    session_->Read();
  }
  ~RunsCallTest() override {
    if (caller_.joinable()) caller_.join();
  }

  // Starts the call, and returns the question when the worker gets it.
  v1::RunsQuestion Call() {
    caller_ = std::thread([this] {
      v1::ListRunsRequest request;
      request.set_session_id(session_id_);
      answer_ = Ask<v1::ListRunsResponse>(&v1::Admin::Stub::ListRuns, request);
    });
    for (;;) {
      const v1::DesiredState desired = worker_->Read();
      if (desired.runs_questions_size() > 0) return desired.runs_questions(0);
    }
  }
  absl::StatusOr<v1::ListRunsResponse> Answer() {
    caller_.join();
    return answer_;
  }

  v1::WorkerState state_;
  std::unique_ptr<WorkerStream> worker_;
  std::string session_id_;
  std::unique_ptr<SessionStream> session_;
  absl::StatusOr<v1::ListRunsResponse> answer_;
  std::thread caller_;
};

TEST_F(RunsCallTest, IsAnsweredByTheWorker) {
  const v1::RunsQuestion question = Call();
  EXPECT_EQ(question.session_id(), session_id_);
  // Other calls do not wait for it.
  EXPECT_THAT(Sessions(), SizeIs(1));
  v1::RunsAnswer* const answer = state_.add_runs_answers();
  answer->set_question_id(question.question_id());
  answer->add_leases()->set_lease_id(
      UncheckedClaims(state_.sessions(0).lease()).lease_id());
  answer->mutable_leases(0)->add_runs()->set_number(17);
  worker_->Send(state_);
  const absl::StatusOr<v1::ListRunsResponse> runs = Answer();
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_THAT(runs->runs(), SizeIs(1));
  EXPECT_EQ(runs->runs(0).run(), "0:17");
}

TEST_F(RunsCallTest, EndsWithTheCoordinator) {
  Call();
  coordinator_->Stop();
  EXPECT_EQ(ErrorReason(Answer().status()), "COORDINATOR_STOPPING");
}

TEST_F(RunsCallTest, NeedsTheAdminToken) {
  v1::ListRunsRequest list;
  list.set_session_id(session_id_);
  v1::ExplainRunRequest explain;
  explain.set_session_id(session_id_);
  explain.set_run("17");
  // Tenants learn nothing about runs, not even about their own.
  for (const char* const token : {"red-token", "join-token"}) {
    EXPECT_EQ(ErrorReason(Ask<v1::ListRunsResponse>(&v1::Admin::Stub::ListRuns,
                                                    list, token)
                              .status()),
              "TOKEN_UNKNOWN");
    EXPECT_EQ(ErrorReason(Ask<v1::RunExplanation>(&v1::Admin::Stub::ExplainRun,
                                                  explain, token)
                              .status()),
              "TOKEN_UNKNOWN");
  }
}

class OperatorsTest : public CoordinatorTest {
 protected:
  OperatorsTest() {
    config_.operators = {{"olga", Role::kOperator, "olga-token"},
                         {"vera", Role::kViewer, "vera-token"}};
    Restart();
    worker_ = Synchronize("join-token");
    worker_->Send(TestWorker("w0"));
    worker_->Read();
  }
  // Returns the reason of the error, or "OK".
  std::string Cordon(const std::string& token, bool cordoned = true) {
    v1::CordonWorkerRequest request;
    request.set_worker_id("w0");
    request.set_cordoned(cordoned);
    return ReasonOf(
        Ask<v1::WorkerInfo>(&v1::Admin::Stub::CordonWorker, request, token)
            .status());
  }
  std::string Reload(const std::string& token) {
    return ReasonOf(
        Ask<v1::ReloadConfigResponse>(&v1::Admin::Stub::ReloadConfig,
                                      v1::ReloadConfigRequest(), token)
            .status());
  }
  std::string List(const std::string& token) {
    return ReasonOf(Ask<v1::ListWorkersResponse>(&v1::Admin::Stub::ListWorkers,
                                                 v1::ListWorkersRequest(),
                                                 token)
                        .status());
  }
  bool Cordoned() {
    return views::GetWorker(*coordinator_->cluster(), "w0")->cordoned();
  }
  static std::string ReasonOf(const absl::Status& status) {
    return status.ok() ? "OK" : ErrorReason(status);
  }

  std::unique_ptr<WorkerStream> worker_;
};

TEST_F(OperatorsTest, AViewerSeesAndChangesNothing) {
  EXPECT_EQ(List("vera-token"), "OK");
  EXPECT_EQ(Cordon("vera-token"), "ROLE_REQUIRED");
  EXPECT_FALSE(Cordoned());
  EXPECT_EQ(Reload("vera-token"), "ROLE_REQUIRED");
  v1::StopQueueRequest stop;
  stop.set_tenant("red");
  EXPECT_EQ(ReasonOf(Ask<v1::QueueInfo>(&v1::Admin::Stub::StopQueue, stop,
                                        "vera-token")
                         .status()),
            "ROLE_REQUIRED");
  v1::ResumeQueueRequest resume;
  resume.set_tenant("red");
  EXPECT_EQ(ReasonOf(Ask<v1::QueueInfo>(&v1::Admin::Stub::ResumeQueue, resume,
                                        "vera-token")
                         .status()),
            "ROLE_REQUIRED");
  EXPECT_EQ(ReasonOf(Ask<v1::MigrateSessionResponse>(
                         &v1::Admin::Stub::MigrateSession,
                         v1::MigrateSessionRequest(), "vera-token")
                         .status()),
            "ROLE_REQUIRED");
}

TEST_F(OperatorsTest, AnOperatorDoesAllButConfigure) {
  EXPECT_EQ(List("olga-token"), "OK");
  EXPECT_EQ(Cordon("olga-token"), "OK");
  EXPECT_TRUE(Cordoned());
  EXPECT_EQ(Reload("olga-token"), "ROLE_REQUIRED");
}

TEST_F(OperatorsTest, EveryChangeHasAnAuditLine) {
  const auto lines = [](const std::function<void()>& change) {
    testing::internal::CaptureStderr();
    change();
    return testing::internal::GetCapturedStderr();
  };
  const std::string cordoned = lines([&] { Cordon("olga-token"); });
  for (const char* const part :
       {"msg=audit", "who=olga", "role=operator", "what=CordonWorker",
        "object=w0", "before=\"takes leases\"", "after=cordoned",
        "result=OK"}) {
    EXPECT_THAT(cordoned, HasSubstr(part));
  }
  EXPECT_THAT(lines([&] { Cordon("admin-token", false); }),
              AllOf(HasSubstr("who=admin"), HasSubstr("before=cordoned"),
                    HasSubstr("after=\"takes leases\"")));
  // Attempts, too, and never with the token.
  const std::string refused = lines([&] { Cordon("vera-token"); });
  EXPECT_THAT(refused, AllOf(HasSubstr("msg=audit who=vera role=viewer"),
                             HasSubstr("result=ROLE_REQUIRED"),
                             Not(HasSubstr("vera-token"))));
  const std::string unknown = lines([&] { Cordon("no-such-token"); });
  EXPECT_THAT(unknown, AllOf(HasSubstr("who=- role=-"),
                             HasSubstr("result=TOKEN_UNKNOWN"),
                             Not(HasSubstr("no-such-token"))));
  // A call that changes nothing leaves no audit line.
  EXPECT_THAT(lines([&] { List("vera-token"); }), Not(HasSubstr("audit")));
}

TEST_F(OperatorsTest, TokensAreReplacedWhileItRuns) {
  Config next = config_;
  next.admin_token = "new-admin";
  next.join_token = "new-join";
  next.operators = {{"vera", Role::kOperator, "vera-token"}};
  next_config_ = next;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Reload("admin-token"), "OK");
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("who=admin role=admin"),
            HasSubstr("changed: operator admin (token), operator vera (viewer "
                      "to operator), join token; removed: operator olga"),
            Not(HasSubstr("new-admin")), Not(HasSubstr("new-join"))));
  EXPECT_EQ(List("admin-token"), "TOKEN_UNKNOWN");
  EXPECT_EQ(List("olga-token"), "TOKEN_UNKNOWN");
  EXPECT_EQ(List("new-admin"), "OK");
  EXPECT_EQ(Cordon("vera-token"), "OK");
  const auto stream = Synchronize("join-token");
  EXPECT_EQ(ErrorReason(stream->Finish()), "TOKEN_UNKNOWN");
  const auto another = Synchronize("new-join");
  another->Send(TestWorker("w1"));
  EXPECT_EQ(another->Read().revision(), 1u);
}

}  // namespace
}  // namespace djinn::coordinator
