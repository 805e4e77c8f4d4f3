// Tests metrics that no program moves on a CPU, or that no scrape would meet.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/error.h"
#include "common/metrics/exposition.h"
#include "gmock/gmock.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using WorkerMetricsTest = WorkerCoreTest;

TEST_F(WorkerMetricsTest, AResultThatIsItsOperandCountsAsACopy) {
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_alias_copies_total 0\n"));
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Call("fake::alias", {FakeGraph::View(x, 2)},
         {FakeGraph::View(s.Slot(srg::Slot::Kind::kResult), 2)});
  s.FillInPlace(x, 2);
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->Define(1, s.get());
  client->Run(1, {1, 2}, {5});
  EXPECT_EQ(client->Read(2, 2), (Floats{1, 2}));
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_alias_copies_total 1\n"));
}

TEST_F(WorkerMetricsTest, ANodeThatIsCalledOnceMoreForWantOfMemoryCounts) {
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_retried_nodes_total 0\n"));
  std::atomic<int> calls = 0;
  device_.SetExecuteHook([&calls](const std::string&) {
    return calls++ > 0 ? absl::OkStatus()
                       : MakeError(absl::StatusCode::kResourceExhausted,
                                   "OUT_OF_MEMORY", "no memory");
  });
  FakeGraph s;
  const uint32_t x = s.Bound();
  s.Add(x, x, 2);
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  client->Define(1, s.get());
  client->Run(1, {1, 2});
  EXPECT_EQ(client->Read(2, 2), (Floats{2, 4}));
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_retried_nodes_total 1\n"));
  device_.SetExecuteHook([](const std::string&) { return absl::OkStatus(); });
}

TEST_F(WorkerMetricsTest, AValueThatAnotherWorkerMayFetchIsAnOffer) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1, 2}));
  EXPECT_THAT(Metrics(), HasSubstr("djinn_worker_offers 0\n"));
  client->Offer(1, std::string(16, 'a'));
  EXPECT_TRUE(WaitUntil([this] {
    return absl::StrContains(Metrics(), "djinn_worker_offers 1\n");
  }));
}

// A device that counts by itself, as a GPU does.
class CountingDevice : public FakeDevice {
 public:
  CountingDevice() : FakeDevice(1 << 20) {}
  std::vector<std::pair<std::string, uint64_t>> Counts() const override {
    return {{"graphs_replayed", 7}};
  }
};

TEST_F(WorkerMetricsTest, DevicesCountersAreShownByEvent) {
  EXPECT_THAT(Metrics(), Not(HasSubstr("djinn_worker_device_events_total")));
  CountingDevice device;
  WorkerCore core({}, &device, &clock_, &random_);
  Exposition exposition;
  core.Collect(&exposition);
  EXPECT_THAT(exposition.Text(),
              HasSubstr("djinn_worker_device_events_total{event="
                        "\"graphs_replayed\"} 7\n"));
  core.Shutdown();
}

}  // namespace
}  // namespace djinn::worker
