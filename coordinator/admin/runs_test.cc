// Tests operators' questions about runs: which workers the cluster asks, and
// how it uses the answers.
#include "coordinator/admin/runs.h"

#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/log/log.h"
#include "coordinator/admin/operations.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/tables/run_inquiries.h"
#include "coordinator/testing/cluster_fixture.h"

namespace djinn::coordinator {
namespace {

class ClusterRunsTest : public ClusterTest {
 protected:
  ClusterRunsTest() {
    session_ = Open("red");
    worker_ = Join(w0_);
    Grant(session_, 0, worker_, &w0_);
  }

  // Unset while there is no answer.
  template <typename Response>
  struct Pending {
    std::optional<absl::StatusOr<Response>> answer;
  };
  using List = std::shared_ptr<Pending<v1::ListRunsResponse>>;
  using Explanation = std::shared_ptr<Pending<v1::RunExplanation>>;

  template <typename Response>
  static auto Into(std::shared_ptr<Pending<Response>> pending) {
    return [pending](absl::StatusOr<Response> answer) {
      EXPECT_FALSE(pending->answer.has_value());
      pending->answer = std::move(answer);
    };
  }
  List ListRuns(const std::string& session) {
    auto list = std::make_shared<Pending<v1::ListRunsResponse>>();
    runs::List(*cluster_, session, Into(list));
    return list;
  }
  Explanation ExplainRun(const std::string& run) {
    v1::ExplainRunRequest request;
    request.set_session_id(log::ShortId(session_.owner));
    request.set_run(run);
    auto explanation = std::make_shared<Pending<v1::RunExplanation>>();
    runs::Explain(*cluster_, request, Into(explanation));
    return explanation;
  }
  template <typename Response>
  static std::string Reason(const std::shared_ptr<Pending<Response>>& pending) {
    if (!pending->answer.has_value()) return "none yet";
    return ErrorReason(pending->answer->status());
  }

  // Has the worker answer its questions with these run numbers for each of its
  // leases. With `of_anybody`, it also answers for leases that it was not asked
  // about.
  void Report(const StreamId& worker, v1::WorkerState state,
              const std::vector<uint64_t>& numbers, bool of_anybody = false) {
    const std::optional<v1::DesiredState> desired = Desired(worker);
    ASSERT_TRUE(desired.has_value());
    state.set_applied_revision(desired->revision());
    for (const v1::RunsQuestion& question : desired->runs_questions()) {
      v1::RunsAnswer* const answer = state.add_runs_answers();
      answer->set_question_id(question.question_id());
      for (const v1::HeldSession& held : state.sessions()) {
        const v1::LeaseClaims claims = UncheckedClaims(held.lease());
        if (!of_anybody && claims.session_id() != question.session_id()) {
          continue;
        }
        v1::LeaseRuns* const runs = answer->add_leases();
        runs->set_lease_id(claims.lease_id());
        for (const uint64_t number : numbers) {
          v1::RunRecord* const run = runs->add_runs();
          run->set_number(number);
          run->set_state(v1::RunRecord::COMPLETED);
        }
        runs->mutable_runs(runs->runs_size() - 1)
            ->set_state(v1::RunRecord::WAITING);
        runs->mutable_runs(runs->runs_size() - 1)->set_gate(v1::RUN_GATE_BYTES);
        runs->set_more_waiting(2);
      }
    }
    EXPECT_EQ(workers::Report(*cluster_, worker, state), absl::OkStatus());
  }

  StreamId session_;
  StreamId worker_;
};

TEST_F(ClusterRunsTest, TheWorkerIsAskedAndItsAnswerShown) {
  const List list = ListRuns(log::ShortId(session_.owner));
  EXPECT_FALSE(list->answer.has_value());
  Report(worker_, w0_, {3, 5});
  ASSERT_TRUE(list->answer.has_value());
  ASSERT_TRUE(list->answer->ok()) << list->answer->status();
  const v1::ListRunsResponse& runs = **list->answer;
  ASSERT_EQ(runs.runs_size(), 2);
  EXPECT_EQ(runs.runs(0).run(), "0:3");
  EXPECT_EQ(runs.runs(0).session_id(), log::ShortId(session_.owner));
  EXPECT_EQ(runs.runs(0).tenant(), "red");
  EXPECT_EQ(runs.runs(0).worker_id(), "w0");
  EXPECT_EQ(runs.runs(0).lease_id(), LeaseId(w0_));
  EXPECT_FALSE(runs.runs(0).has_gate());
  EXPECT_EQ(runs.runs(1).gate().reason(), "WAITS_FOR_BYTES");
  EXPECT_EQ(runs.more_waiting(), 2u);
  EXPECT_EQ(runs.silent_workers_size(), 0);
  // The worker learns that the question is over.
  const std::optional<v1::DesiredState> desired = Desired(worker_);
  ASSERT_TRUE(desired.has_value());
  EXPECT_EQ(desired->runs_questions_size(), 0);
}

TEST_F(ClusterRunsTest, TheFullIdWillDo) {
  const List list = ListRuns(session_.owner);
  Report(worker_, w0_, {3});
  EXPECT_TRUE(list->answer.has_value() && list->answer->ok());
}

TEST_F(ClusterRunsTest, AnUnknownSessionIsRefusedAtOnce) {
  EXPECT_EQ(Reason(ListRuns("1a2b3c4d")), "SESSION_UNKNOWN");
  // The worker gets no question.
  EXPECT_FALSE(Desired(worker_).has_value());
}

TEST_F(ClusterRunsTest, ASessionWithoutALeaseHasNoRuns) {
  const StreamId other = Open("blue");
  EXPECT_EQ(Reason(ListRuns(other.owner)), "NO_LEASE");
  EXPECT_EQ(Reason(ExplainRun("3:1")), "NO_LEASE");
}

TEST_F(ClusterRunsTest, AWorkerThatNeverAnswersIsNamedInTime) {
  const List list = ListRuns(session_.owner);
  // The worker reports, but answers no question.
  Execute(worker_, &w0_);
  clock_.Advance(RunInquiries::kPatience - absl::Milliseconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_FALSE(list->answer.has_value());
  clock_.Advance(absl::Milliseconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_EQ(Reason(list), "WORKER_SILENT");
  EXPECT_EQ(list->answer->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(list->answer->status().message().find("worker w0"),
            std::string::npos);
}

TEST_F(ClusterRunsTest, AWorkerThatIsAwayIsNamedAtOnce) {
  workers::Leave(*cluster_, worker_);
  const List list = ListRuns(session_.owner);
  EXPECT_EQ(Reason(list), "WORKER_LOST");
  EXPECT_EQ(list->answer->status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClusterRunsTest, AStreamThatBreaksInBetweenIsTakenUp) {
  const List list = ListRuns(session_.owner);
  EXPECT_EQ(Desired(worker_)->runs_questions_size(), 1);
  workers::Leave(*cluster_, worker_);
  worker_ = Join(w0_);
  Report(worker_, w0_, {3});
  ASSERT_TRUE(list->answer.has_value());
  EXPECT_TRUE(list->answer->ok());
}

TEST_F(ClusterRunsTest, ASilentWorkerDoesNotHideTheOthers) {
  v1::WorkerState other = TestWorker("w1");
  const StreamId second = Join(other);
  // The first worker accepts no more leases.
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false).ok());
  Grant(session_, 1, second, &other);
  const List list = ListRuns(session_.owner);
  Report(worker_, w0_, {3});
  EXPECT_FALSE(list->answer.has_value());
  clock_.Advance(RunInquiries::kPatience);
  coordinator::Tick(*cluster_);
  ASSERT_TRUE(list->answer.has_value());
  ASSERT_TRUE(list->answer->ok()) << list->answer->status();
  EXPECT_EQ((*list->answer)->runs_size(), 1);
  ASSERT_EQ((*list->answer)->silent_workers_size(), 1);
  EXPECT_EQ((*list->answer)->silent_workers(0).worker_id(), "w1");
  EXPECT_EQ((*list->answer)->silent_workers(0).reason(), "WORKER_SILENT");
}

TEST_F(ClusterRunsTest, ARunIsExplainedWithItsPlacement) {
  const Explanation explanation = ExplainRun("0:3");
  Report(worker_, w0_, {3, 5});
  ASSERT_TRUE(explanation->answer.has_value());
  ASSERT_TRUE(explanation->answer->ok()) << explanation->answer->status();
  const v1::RunExplanation& run = **explanation->answer;
  EXPECT_EQ(run.run().record().number(), 3u);
  EXPECT_EQ(run.device().lease_id(), LeaseId(w0_));
  ASSERT_EQ(run.device().decision().candidates_size(), 1);
  EXPECT_EQ(run.device().decision().candidates(0).worker_id(), "w0");
}

TEST_F(ClusterRunsTest, ANumberAloneWillDoWhereItIsUnique) {
  const Explanation explanation = ExplainRun("5");
  Report(worker_, w0_, {3, 5});
  ASSERT_TRUE(explanation->answer.has_value());
  ASSERT_TRUE(explanation->answer->ok()) << explanation->answer->status();
  EXPECT_EQ((*explanation->answer)->run().run(), "0:5");
}

TEST_F(ClusterRunsTest, ANumberOfTwoDevicesIsAmbiguous) {
  Grant(session_, 1, worker_, &w0_);
  const Explanation either = ExplainRun("3");
  const Explanation second = ExplainRun("1:3");
  Report(worker_, w0_, {3});
  EXPECT_EQ(Reason(either), "RUN_AMBIGUOUS");
  EXPECT_NE(either->answer->status().message().find("0:3, 1:3"),
            std::string::npos)
      << either->answer->status();
  ASSERT_TRUE(second->answer.has_value());
  ASSERT_TRUE(second->answer->ok()) << second->answer->status();
  EXPECT_EQ((*second->answer)->run().virtual_device(), 1u);
  EXPECT_EQ((*second->answer)->device().virtual_device(), 1u);
}

TEST_F(ClusterRunsTest, AnUnknownRunIsNamed) {
  const Explanation explanation = ExplainRun("0:4");
  Report(worker_, w0_, {3, 5});
  EXPECT_EQ(Reason(explanation), "RUN_UNKNOWN");
  EXPECT_EQ(explanation->answer->status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(explanation->answer->status().message().find("0:4"),
            std::string::npos);
}

TEST_F(ClusterRunsTest, ANameThatIsNoneIsRefusedAtOnce) {
  EXPECT_EQ(Reason(ExplainRun("last")), "RUN_MALFORMED");
}

TEST_F(ClusterRunsTest, AWorkerSpeaksForItsOwnLeasesAlone) {
  v1::WorkerState other = TestWorker("w1");
  const StreamId second = Join(other);
  ASSERT_TRUE(operations::Cordon(*cluster_, "w0", true, false).ok());
  Grant(session_, 1, second, &other);
  const List list = ListRuns(session_.owner);
  // The second worker reports the other one's lease as its own.
  *other.add_sessions() = w0_.sessions(0);
  Report(second, other, {7});
  Report(worker_, w0_, {3});
  ASSERT_TRUE(list->answer.has_value());
  ASSERT_TRUE(list->answer->ok()) << list->answer->status();
  ASSERT_EQ((*list->answer)->runs_size(), 2);
  EXPECT_EQ((*list->answer)->runs(0).run(), "0:3");
  EXPECT_EQ((*list->answer)->runs(1).run(), "1:7");
}

TEST_F(ClusterRunsTest, AnswerAboutAnotherSessionIsIgnored) {
  const StreamId other = Open("blue");
  Grant(other, 0, worker_, &w0_);
  const List list = ListRuns(session_.owner);
  Report(worker_, w0_, {3}, /*of_anybody=*/true);
  ASSERT_TRUE(list->answer.has_value());
  ASSERT_TRUE(list->answer->ok()) << list->answer->status();
  ASSERT_EQ((*list->answer)->runs_size(), 1);
  EXPECT_EQ((*list->answer)->runs(0).tenant(), "red");
}

TEST_F(ClusterRunsTest, ASessionThatEndsMeanwhileIsUnknown) {
  const Explanation explanation = ExplainRun("0:3");
  const v1::WorkerState before = w0_;
  sessions::Close(*cluster_, session_);
  Report(worker_, before, {3});
  EXPECT_EQ(Reason(explanation), "SESSION_UNKNOWN");
}

TEST_F(ClusterRunsTest, PendingInquiryEndsWhenTheCoordinatorStops) {
  const List list = ListRuns(session_.owner);
  coordinator::Stop(*cluster_);
  EXPECT_EQ(Reason(list), "COORDINATOR_STOPPING");
  EXPECT_EQ(Reason(ListRuns(session_.owner)), "COORDINATOR_STOPPING");
}

TEST_F(ClusterRunsTest, AnAnswerThatIsTooMuchEndsTheStream) {
  v1::WorkerState state = w0_;
  for (int i = 0; i < 100; ++i) state.add_runs_answers();
  EXPECT_EQ(ErrorReason(workers::Report(*cluster_, worker_, state)),
            "PROTOCOL_VIOLATION");
}

}  // namespace
}  // namespace djinn::coordinator
