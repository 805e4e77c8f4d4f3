// A worker without threads of its own, as a simulation drives it.
#include <memory>

#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

class SingleThreadTest : public WorkerCoreTest {
 protected:
  SingleThreadTest() {
    WorkerCoreOptions options;
    options.own_threads = false;
    Start(options);
  }
  // Drives the worker until the condition holds.
  template <typename Condition>
  bool Drive(Condition condition) {
    return WaitUntil([&] {
      core_->RunReady();
      return condition();
    });
  }
};

TEST_F(SingleThreadTest, MessagesWaitUntilTheWorkerIsDriven) {
  std::unique_ptr<TestClient> client = Open();
  client->Define(1, AddTo());
  client->InstallInline(1, FloatBytes({1, 2}));
  client->InstallInline(2, FloatBytes({10, 20}));
  client->Run(1, {1, 2});
  EXPECT_TRUE(WaitUntil([&] { return core_->Snapshot().queued_runs() == 1; }));
  EXPECT_EQ(core_->counters().runs, 0u);
  EXPECT_TRUE(core_->RunReady());
  EXPECT_EQ(core_->counters().runs, 1u);
  EXPECT_FALSE(core_->RunReady());
  EXPECT_EQ(core_->Snapshot().queued_runs(), 0u);
}

TEST_F(SingleThreadTest, LeasesExpireByTheClockWhenDriven) {
  std::unique_ptr<TestClient> client = Open();
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(core_->Snapshot().sessions_size(), 1);
  core_->RunReady();
  EXPECT_EQ(core_->Snapshot().sessions_size(), 0);
  EXPECT_TRUE(Drive([&] { return core_->ledger().usage().used == 0; }));
}

}  // namespace
}  // namespace djinn::worker
