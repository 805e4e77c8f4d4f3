#include "gpu_worker/all_gpus_worker.h"

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;

// Processes that serve from their start. After SIGTERM, they end when the test
// says so.
class FakeProcesses : public GpuLauncher {
 public:
  struct State {
    Mutex mu;
    CondVar changed;
    bool ended ABSL_GUARDED_BY(mu) = false;
    size_t reaped ABSL_GUARDED_BY(mu) = 0;
    std::vector<int> signals ABSL_GUARDED_BY(mu);
  };
  explicit FakeProcesses(State* state) : state_(*state) {}

  absl::StatusOr<pid_t> Launch(int index) override { return index + 1; }
  void Signal(pid_t /*pid*/, int signal) override {
    MutexLock lock(&state_.mu);
    state_.signals.push_back(signal);
  }
  std::optional<std::string> Reap(pid_t /*pid*/) override {
    MutexLock lock(&state_.mu);
    if (!state_.ended || state_.signals.empty() ||
        state_.signals.back() != SIGTERM) {
      return std::nullopt;
    }
    ++state_.reaped;
    state_.changed.SignalAll();
    return "exit status 0";
  }
  std::string Address(int /*index*/) override { return "host:1"; }
  std::string NotReady(int /*index*/) override { return ""; }

 private:
  State& state_;
};

class AllGpusWorkerTest : public testing::Test {
 protected:
  static WorkerConfig Config(absl::Duration drain_timeout) {
    WorkerConfig config;
    config.worker_id = "w0";
    config.drain_timeout = drain_timeout;
    return config;
  }
  AllGpusWorkerTest()
      : worker_(AllGpusWorker::StartWith(
                    Config(absl::Seconds(10)), {"GPU-a"},
                    std::make_unique<FakeProcesses>(&processes_), &clock_)
                    .value()) {}
  ~AllGpusWorkerTest() override {
    End();
    worker_->Stop();
  }

  void End() {
    MutexLock lock(&processes_.mu);
    processes_.ended = true;
    for (Patience patience; processes_.reaped < 1;) {
      patience.Wait(&processes_.changed, &processes_.mu);
    }
  }
  // Drains the worker, whose process ends after `end`. Returns for how long the
  // worker waited.
  absl::Duration Drain(absl::Duration end) {
    absl::Duration waited;
    worker_->Drain([&](absl::Duration time) {
      clock_.Advance(time);
      waited += time;
      if (waited >= end) End();
      return false;
    });
    return waited;
  }

  FakeClock clock_;
  FakeProcesses::State processes_;
  std::unique_ptr<AllGpusWorker> worker_;
};

TEST_F(AllGpusWorkerTest, DrainWaitsForAsLongAsTheConfigurationSays) {
  const absl::Duration waited = Drain(absl::Hours(1));
  EXPECT_GE(waited, absl::Seconds(10));
  EXPECT_LT(waited, absl::Minutes(1));
}

TEST_F(AllGpusWorkerTest, DrainWaitsForAsLongAsAReloadSays) {
  worker_->Reload(Config(absl::Minutes(10)));
  EXPECT_GE(Drain(absl::Minutes(9)), absl::Minutes(9));
  MutexLock lock(&processes_.mu);
  EXPECT_THAT(processes_.signals, ElementsAre(SIGHUP, SIGTERM));
}

TEST_F(AllGpusWorkerTest, ConfigurationThatCannotBeReadChangesNothing) {
  worker_->Reload(absl::InvalidArgumentError("no such key"));
  EXPECT_LT(Drain(absl::Hours(1)), absl::Minutes(1));
}

}  // namespace
}  // namespace djinn::worker
