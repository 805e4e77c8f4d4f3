// Tests the operators' views of a cluster.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/requests.h"
#include "coordinator/cluster/sessions.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/testing/cluster_fixture.h"
#include "coordinator/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using ClusterAdminTest = ClusterTest;

TEST_F(ClusterAdminTest, OperatorsSeeNumbersButNoSecrets) {
  AddContent("red", 1, 1000, &w0_);
  v1::HeldGraph* const graph = w0_.add_graphs();
  graph->set_content_bytes(4000);
  graph->set_fingerprint("f");
  graph->set_run_count(5);
  const auto [worker, session, lease] = Granted("red");
  EXPECT_TRUE(sessions::NoteGraph(*cluster_, session, "fingerprint"));
  EXPECT_FALSE(sessions::NoteGraph(*cluster_, session, "fingerprint"));

  const v1::SessionInfo info = views::Sessions(*cluster_, {}).items[0];
  EXPECT_EQ(info.session_id(), session.owner.substr(0, 8));
  EXPECT_EQ(info.graph_count(), 1u);
  EXPECT_EQ(info.storage_bytes(), 100u);
  EXPECT_THAT(info.lease_ids(), SizeIs(1));
  EXPECT_EQ(views::Workers(*cluster_, {}).items[0].session_count(), 1u);
  EXPECT_EQ(views::Workers(*cluster_, {}).items[0].content_bytes(), 1000u);
  std::vector<v1::GraphInfo> graphs(2);
  graphs[0].set_fingerprint("66");  // "f"
  graphs[1].set_fingerprint("67");
  views::DescribePlans(*cluster_, absl::MakeSpan(graphs));
  EXPECT_EQ(graphs[0].run_count(), 5u);
  EXPECT_EQ(graphs[0].content_bytes(), 4000u);
  EXPECT_THAT(graphs[0].worker_ids(), ElementsAre("w0"));
  EXPECT_EQ(graphs[1].run_count(), 0u);
  EXPECT_THAT(graphs[1].worker_ids(), IsEmpty());
  const v1::TenantInfo red = views::TenantInfos(*cluster_, {}).items[1];
  EXPECT_EQ(red.tenant(), "red");
  EXPECT_EQ(red.session_count(), 1u);
  EXPECT_EQ(red.lease_count(), 1u);
  EXPECT_EQ(red.content_bytes(), 1000u);
  EXPECT_EQ(red.storage_bytes(), 100u);
}

TEST_F(ClusterAdminTest, AWorkerWhoseGpuFailsShowsItAndGetsNoLease) {
  w0_.mutable_gpu_health()->set_source("NVML");
  const StreamId worker = Join(w0_);
  Grant(Open("red"), 0, worker, &w0_);
  EXPECT_EQ(views::GetWorker(*cluster_, "w0")->gpu_health().source(), "NVML");
  w0_.mutable_gpu_health()->set_failure("Xid 79");
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_EQ(views::GetWorker(*cluster_, "w0")->gpu_health().failure(),
            "Xid 79");
  const StreamId waits = Open("blue");
  ASSERT_TRUE(requests::Request(*cluster_, waits, TestLeaseRequest(0)).ok());
  Execute(worker, &w0_);
  EXPECT_FALSE(Next(waits).has_value());
  // Its lease goes on.
  EXPECT_EQ(views::GetWorker(*cluster_, "w0")->lease_count(), 1u);
  // A restarted worker with a GPU that works.
  w0_.clear_gpu_health();
  ASSERT_TRUE(workers::Report(*cluster_, worker, w0_).ok());
  EXPECT_FALSE(views::GetWorker(*cluster_, "w0")->has_gpu_health());
}

TEST_F(ClusterAdminTest, OperatorsSeeWhatWorkersReport) {
  w0_.mutable_memory()->set_storage_bytes(7);
  w0_.mutable_plan_cache()->set_hits(8);
  w0_.mutable_content_cache()->set_misses(9);
  w0_.mutable_executed()->set_runs(10);
  v1::WorkerState w1 = TestWorker("w1");
  const auto [first, session, lease] = Granted("red");
  const StreamId second = Join(w1);
  Grant(session, 1, second, &w1);
  for (v1::WorkerState* state : {&w0_, &w1}) {
    v1::HeldSession* const held = state->mutable_sessions(0);
    held->set_attached(true);
    held->mutable_use()->mutable_contents()->set_count(1);
    held->mutable_use()->mutable_contents()->set_size_bytes(1000);
    held->mutable_use()->mutable_storages()->set_size_bytes(20);
    held->mutable_use()->mutable_generators()->set_size_bytes(3);
    held->mutable_use()->mutable_caches()->set_count(1);
    held->mutable_use()->mutable_caches()->set_size_bytes(5);
    held->mutable_use()->set_queued_runs(1);
    held->mutable_use()->set_outstanding(2);
    held->mutable_use()->set_outstanding_bytes(50);
    held->mutable_use()->set_graph_count(4);
    held->mutable_use()->set_model_count(1);
    held->mutable_use()->set_model_bytes(uint64_t{3} << 62);
    held->mutable_use()->set_refused_models(2);
    held->mutable_use()->add_models()->set_name(state->worker_id());
  }
  w1.mutable_sessions(0)->set_attached(false);
  ASSERT_TRUE(workers::Report(*cluster_, first, w0_).ok());
  ASSERT_TRUE(workers::Report(*cluster_, second, w1).ok());

  const v1::WorkerInfo worker = views::GetWorker(*cluster_, "w0").value();
  EXPECT_EQ(worker.memory().storage_bytes(), 7u);
  EXPECT_EQ(worker.plan_cache().hits(), 8u);
  EXPECT_EQ(worker.content_cache().misses(), 9u);
  EXPECT_EQ(worker.executed().runs(), 10u);
  EXPECT_EQ(worker.lease_count(), 1u);

  // A session and its tenant sum over all workers.
  const v1::SessionInfo info =
      views::GetSession(*cluster_, session.owner).value();
  EXPECT_EQ(info.use().contents().count(), 2u);
  EXPECT_EQ(info.use().contents().size_bytes(), 2000u);
  EXPECT_EQ(info.use().storages().size_bytes(), 40u);
  EXPECT_EQ(info.use().generators().size_bytes(), 6u);
  EXPECT_EQ(info.use().caches().count(), 2u);
  EXPECT_EQ(info.use().caches().size_bytes(), 10u);
  EXPECT_EQ(info.use().queued_runs(), 2u);
  EXPECT_EQ(info.use().outstanding(), 4u);
  EXPECT_EQ(info.use().outstanding_bytes(), 100u);
  EXPECT_EQ(info.use().graph_count(), 8u);
  EXPECT_EQ(info.use().model_count(), 2u);
  // The sum saturates.
  EXPECT_EQ(info.use().model_bytes(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(info.use().refused_models(), 4u);
  EXPECT_EQ(info.use().models_size(), 2);
  EXPECT_EQ(info.limits().memory_bytes(), uint64_t{1} << 30);
  EXPECT_EQ(info.session_epoch(), 1u);
  EXPECT_EQ(views::GetTenant(*cluster_, "red")->use().contents().size_bytes(),
            2000u);
  EXPECT_FALSE(views::GetTenant(*cluster_, "blue")->has_use());

  // A lease counts its worker alone.
  const v1::LeaseInfo used = views::GetLease(*cluster_, LeaseId(w0_)).value();
  EXPECT_EQ(used.state(), v1::LeaseInfo::IN_USE);
  EXPECT_EQ(used.worker_id(), "w0");
  EXPECT_EQ(used.incarnation(), w0_.incarnation());
  EXPECT_EQ(used.use().contents().size_bytes(), 1000u);
  EXPECT_EQ(used.limits().max_graphs(), 16u);
  EXPECT_THAT(used.placement_reason(), Not(IsEmpty()));
  const v1::LeaseInfo idle = views::GetLease(*cluster_, LeaseId(w1)).value();
  EXPECT_EQ(idle.state(), v1::LeaseInfo::GRANTED);
  EXPECT_FALSE(idle.has_use());

  // A lost worker has no known figures.
  clock_.Advance(config_.worker_timeout + absl::Seconds(1));
  coordinator::Tick(*cluster_);
  EXPECT_FALSE(views::GetWorker(*cluster_, "w0")->has_memory());
  EXPECT_FALSE(views::GetWorker(*cluster_, "w0")->has_plan_cache());
}

TEST_F(ClusterAdminTest, OperatorsSeeWhatWaits) {
  const StreamId session = Open("red");
  ASSERT_TRUE(requests::Request(*cluster_, session, TestLeaseRequest(3)).ok());
  EXPECT_THAT(views::Sessions(*cluster_, {}).items[0].pending_virtual_devices(),
              ElementsAre(3));
  const StreamId worker = Join(w0_);
  ASSERT_THAT(views::Leases(*cluster_, {}).items, SizeIs(1));
  EXPECT_EQ(views::Leases(*cluster_, {}).items[0].state(),
            v1::LeaseInfo::OFFERED);
  Execute(worker, &w0_);
  EXPECT_EQ(views::Leases(*cluster_, {}).items[0].state(),
            v1::LeaseInfo::GRANTED);
  EXPECT_THAT(views::Sessions(*cluster_, {}).items[0].pending_virtual_devices(),
              IsEmpty());
}

TEST_F(ClusterAdminTest, SessionsAreListedOldestFirst) {
  Tenant roomy = *tenants_.Find("red");
  roomy.max_sessions = 10'000;
  tenants_.Replace({roomy});
  std::vector<std::string> opened;
  for (int i = 0; i < 10'000; ++i) {
    v1::OpenSession open = TestOpen();
    open.set_program(absl::StrCat(i));
    opened.push_back(open.program());
    ASSERT_TRUE(sessions::Attach(*cluster_, roomy, open,
                                 std::make_shared<CountingWaker>())
                    .ok());
  }
  std::vector<std::string> listed;
  PageRange range{.max_items = 1000};
  do {
    const Page<v1::SessionInfo> page = views::Sessions(*cluster_, range);
    EXPECT_LE(page.items.size(), 1000u);
    for (const v1::SessionInfo& info : page.items) {
      listed.push_back(info.program());
    }
    range.after = page.last_key;
  } while (!range.after.empty());
  EXPECT_EQ(listed, opened);
}

TEST_F(ClusterAdminTest, OperatorsGetASessionByItsShortenedId) {
  const StreamId session = Open("red");
  EXPECT_TRUE(views::GetSession(*cluster_, session.owner).ok());
  EXPECT_TRUE(views::GetSession(*cluster_, session.owner.substr(0, 8)).ok());
  for (const std::string& id : {session.owner.substr(0, 7), std::string(),
                                session.owner.substr(0, 8) + "-"}) {
    EXPECT_EQ(ErrorReason(views::GetSession(*cluster_, id).status()),
              "SESSION_UNKNOWN");
  }
}

}  // namespace
}  // namespace djinn::coordinator
