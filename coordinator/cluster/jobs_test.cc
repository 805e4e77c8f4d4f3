// Tests the records of executed jobs.
#include "coordinator/cluster/jobs.h"

#include <string>

#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const char kGraph[] = "fingerprint";

class ClusterJobsTest : public ClusterTest {
 protected:
  void Record(size_t jobs) {
    config_.recorded_jobs = jobs;
    Restart();
    worker_ = Join(w0_);
  }
  // Opens a session with a lease, which defined the graph.
  StreamId OpenWith(const std::string& tenant) {
    const StreamId session = Open(tenant);
    Grant(session, 0, worker_, &w0_);
    scheduler::Work work;
    work.Add({semantics::OpClass::kMatmul,
              semantics::Phase::kLlmDecode,
              {1000, 10, 2},
              3});
    work.Add({semantics::OpClass::kPointwise,
              semantics::Phase::kLlmDecode,
              {5, 1, 1},
              4});
    sessions::NoteGraph(*cluster_, session, kGraph,
                        std::make_shared<const scheduler::Work>(work));
    return session;
  }
  // Reports the total runs and time of the graph since the worker started, and
  // the total use of each lease.
  void Report(uint64_t runs, absl::Duration time,
              const std::vector<absl::Duration>& used) {
    w0_.clear_graphs();
    v1::HeldGraph* const graph = w0_.add_graphs();
    graph->set_fingerprint(kGraph);
    graph->set_run_count(runs);
    graph->set_content_bytes(700);
    *graph->mutable_device_time() = ToProtoDuration(time);
    for (size_t i = 0; i < used.size(); ++i) {
      *w0_.mutable_sessions(static_cast<int>(i))
           ->mutable_lease_use()
           ->mutable_device_time() = ToProtoDuration(used[i]);
    }
    EXPECT_TRUE(workers::Report(*cluster_, worker_, w0_).ok());
  }
  std::vector<v1::RecordedJob> Jobs() {
    return jobs::Recorded(*cluster_, {})->items;
  }

  StreamId worker_;
};

TEST_F(ClusterJobsTest, NothingIsKeptUnlessAskedFor) {
  EXPECT_EQ(ErrorReason(jobs::Recorded(*cluster_, {}).status()),
            "NOT_RECORDING");
}

TEST_F(ClusterJobsTest, KeepsRunsWithTheirWorkAndTime) {
  Record(10);
  OpenWith("red");
  clock_.Advance(absl::Seconds(3));
  Report(4, absl::Seconds(2), {absl::Seconds(2)});
  clock_.Advance(absl::Seconds(1));
  Report(5, absl::Seconds(2.5), {absl::Seconds(2.5)});
  // No run happened in between.
  Report(5, absl::Seconds(2.5), {absl::Seconds(2.5)});
  const std::vector<v1::RecordedJob> jobs = Jobs();
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(jobs[0].at().seconds(), 3);
  EXPECT_EQ(jobs[0].tenant(), "red");
  EXPECT_EQ(jobs[0].program(), "test");
  EXPECT_EQ(jobs[0].worker_id(), "w0");
  EXPECT_EQ(jobs[0].runs(), 4u);
  EXPECT_EQ(jobs[0].device_time().seconds(), 2);
  EXPECT_EQ(jobs[0].content_bytes(), 700u);
  EXPECT_EQ(jobs[0].phase(), v1::PHASE_LLM_DECODE);
  EXPECT_EQ(jobs[0].op_class(), "matmul");
  EXPECT_EQ(jobs[0].flops(), 4 * 1005);
  EXPECT_EQ(jobs[0].bytes(), 4 * 14);
  EXPECT_EQ(jobs[0].calls(), 4u * 7);
  EXPECT_EQ(jobs[1].at().seconds(), 4);
  EXPECT_EQ(jobs[1].runs(), 1u);
}

TEST_F(ClusterJobsTest, JobBelongsToTheSessionThatUsedMost) {
  Record(10);
  OpenWith("red");
  OpenWith("blue");
  ASSERT_EQ(w0_.sessions_size(), 2);
  const auto tenant_of = [&](int i) {
    return UncheckedClaims(w0_.sessions(i).lease()).tenant();
  };
  Report(1, absl::Seconds(1), {absl::Seconds(1), absl::ZeroDuration()});
  // The second lease used less in total, but all of it since the last report.
  Report(2, absl::Seconds(1.5), {absl::Seconds(1), absl::Seconds(0.5)});
  const std::vector<v1::RecordedJob> jobs = Jobs();
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(jobs[0].tenant(), tenant_of(0));
  EXPECT_EQ(jobs[1].tenant(), tenant_of(1));
}

TEST_F(ClusterJobsTest, KeepsTheNewestInPages) {
  Record(3);
  OpenWith("red");
  for (int i = 1; i <= 5; ++i) {
    Report(i, absl::Seconds(i), {absl::Seconds(i)});
  }
  const Page<v1::RecordedJob> first = *jobs::Recorded(*cluster_, {"", 2});
  ASSERT_THAT(first.items, SizeIs(2));
  const Page<v1::RecordedJob> second =
      *jobs::Recorded(*cluster_, {first.last_key, 2});
  ASSERT_THAT(second.items, SizeIs(1));
  EXPECT_EQ(second.last_key, "");
}

TEST_F(ClusterJobsTest, JobsOfUnknownGraphsAreLeftOut) {
  Record(3);
  Grant(Open("red"), 0, worker_, &w0_);
  Report(1, absl::Seconds(1), {absl::Seconds(1)});
  EXPECT_THAT(Jobs(), IsEmpty());
}

}  // namespace
}  // namespace djinn::coordinator
