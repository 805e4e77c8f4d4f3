#include "gpu_worker/gpus/gpu_supervisor.h"

#include <csignal>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Processes that the test ends by hand. The pid of the worker of GPU n is
// 100 * (n + 1), and one more for each start.
class FakeLauncher : public GpuLauncher {
 public:
  absl::StatusOr<pid_t> Launch(int index) override {
    if (refuses.contains(index)) {
      return MakeError(absl::StatusCode::kInternal, "CANNOT_LAUNCH",
                       "no memory");
    }
    return 100 * (index + 1) + starts[index]++;
  }
  void Signal(pid_t pid, int signal) override {
    signals.push_back({pid, signal});
  }
  std::optional<std::string> Reap(pid_t pid) override {
    const auto found = ended.find(pid);
    if (found == ended.end()) return std::nullopt;
    const std::string how = found->second;
    ended.erase(found);
    return how;
  }
  std::string Address(int index) override { return addresses[index]; }
  std::string NotReady(int index) override {
    if (asked != nullptr) asked(index);
    return not_ready[index];
  }

  std::set<int> refuses;
  std::map<int, int> starts;
  std::map<int, std::string> addresses, not_ready;
  std::vector<std::pair<pid_t, int>> signals;
  // How those that ended did so, by pid.
  std::map<pid_t, std::string> ended;
  // Runs while a worker is asked.
  std::function<void(int)> asked;
};

class GpuSupervisorTest : public testing::Test {
 protected:
  // Lets time pass in small steps.
  void Pass(absl::Duration time) {
    constexpr absl::Duration kStep = absl::Milliseconds(100);
    for (absl::Duration passed; passed < time; passed += kStep) {
      clock_.Advance(kStep);
      supervisor_.Step();
      supervisor_.AskHealth();
    }
  }
  std::string Failure(int index) const {
    return supervisor_.Checks()[index].failure;
  }

  FakeLauncher launcher_;
  FakeClock clock_;
  GpuSupervisor supervisor_{{"GPU-a", "GPU-b"}, &launcher_, &clock_};
};

TEST_F(GpuSupervisorTest, AWorkerIsStartedForEachGpu) {
  EXPECT_FALSE(supervisor_.Started());
  EXPECT_EQ(Failure(0), "it was not started yet");
  launcher_.not_ready[1] = "[-]gpu failed: Xid 79";
  supervisor_.Step();
  EXPECT_THAT(launcher_.starts, ElementsAre(Pair(0, 1), Pair(1, 1)));
  EXPECT_FALSE(supervisor_.Started());
  launcher_.addresses = {{0, "host:1"}, {1, "host:2"}};
  Pass(absl::Seconds(2));
  EXPECT_TRUE(supervisor_.Started());
  EXPECT_THAT(supervisor_.Addresses(), ElementsAre("host:1", "host:2"));
  const std::vector<ReadinessCheck> checks = supervisor_.Checks();
  EXPECT_EQ(checks[0].name, "gpu0");
  EXPECT_EQ(checks[0].failure, "");
  EXPECT_EQ(checks[0].detail, "GPU-a");
  EXPECT_EQ(checks[1].failure, "[-]gpu failed: Xid 79");
}

TEST_F(GpuSupervisorTest, EndedProcessRestartsWhileOthersContinue) {
  launcher_.addresses = {{0, "host:1"}, {1, "host:2"}};
  Pass(absl::Seconds(2));
  launcher_.ended[100] = "signal 9";
  Pass(absl::Milliseconds(100));
  EXPECT_EQ(Failure(0), "it ended: signal 9");
  EXPECT_EQ(Failure(1), "");
  EXPECT_THAT(supervisor_.Addresses(), ElementsAre("host:2"));
  Pass(absl::Milliseconds(800));
  EXPECT_EQ(launcher_.starts[0], 1);
  Pass(absl::Milliseconds(300));
  EXPECT_EQ(launcher_.starts[0], 2);
  EXPECT_EQ(launcher_.starts[1], 1);
  Pass(absl::Seconds(2));
  EXPECT_EQ(Failure(0), "");
  Exposition out;
  supervisor_.Collect(&out);
  EXPECT_THAT(out.Text(),
              HasSubstr("djinn_worker_gpu_process_starts_total{gpu=\"0\"} 2"));
  EXPECT_THAT(out.Text(),
              HasSubstr("djinn_worker_gpu_process_running{gpu=\"0\"} 1"));
}

TEST_F(GpuSupervisorTest, PausesGrowToAMinuteAndShrinkAfterALongLife) {
  std::vector<absl::Duration> pauses;
  supervisor_.Step();
  for (int i = 0; i < 9; ++i) {
    const int starts = launcher_.starts[0];
    launcher_.ended[100 + starts - 1] = "exit status 1";
    supervisor_.Step();
    absl::Duration pause;
    while (launcher_.starts[0] == starts) {
      clock_.Advance(absl::Seconds(1));
      pause += absl::Seconds(1);
      supervisor_.Step();
    }
    pauses.push_back(pause);
  }
  EXPECT_THAT(
      pauses,
      ElementsAre(absl::Seconds(1), absl::Seconds(2), absl::Seconds(4),
                  absl::Seconds(8), absl::Seconds(16), absl::Seconds(32),
                  absl::Minutes(1), absl::Minutes(1), absl::Minutes(1)));
  Pass(GpuSupervisor::kLong);
  const int starts = launcher_.starts[0];
  launcher_.ended[100 + starts - 1] = "exit status 1";
  Pass(absl::Milliseconds(1200));
  EXPECT_EQ(launcher_.starts[0], starts + 1);
}

TEST_F(GpuSupervisorTest, AProcessThatCannotBeLaunchedCountsAsEnded) {
  launcher_.refuses = {1};
  launcher_.addresses[0] = "host:1";
  Pass(absl::Milliseconds(200));
  EXPECT_TRUE(supervisor_.Started());
  EXPECT_EQ(Failure(1), "it ended: no memory");
  launcher_.refuses.clear();
  Pass(absl::Seconds(2));
  EXPECT_EQ(launcher_.starts[1], 1);
}

TEST_F(GpuSupervisorTest, AfterTheSignalToEndNothingIsStartedAgain) {
  Pass(absl::Seconds(1));
  supervisor_.Signal(SIGHUP);
  supervisor_.Step();
  EXPECT_THAT(launcher_.signals,
              ElementsAre(Pair(100, SIGHUP), Pair(200, SIGHUP)));
  launcher_.signals.clear();
  supervisor_.Signal(SIGTERM);
  supervisor_.Step();
  EXPECT_THAT(launcher_.signals,
              ElementsAre(Pair(100, SIGTERM), Pair(200, SIGTERM)));
  launcher_.ended = {{100, "exit status 0"}, {200, "exit status 0"}};
  EXPECT_FALSE(supervisor_.Ended());
  Pass(absl::Minutes(3));
  EXPECT_TRUE(supervisor_.Ended());
  EXPECT_THAT(launcher_.starts, ElementsAre(Pair(0, 1), Pair(1, 1)));
  launcher_.signals.clear();
  supervisor_.Signal(SIGKILL);
  supervisor_.Step();
  EXPECT_THAT(launcher_.signals, IsEmpty());
}

TEST_F(GpuSupervisorTest, AWorkerThatHangsDelaysNoSignalAndNoRestart) {
  supervisor_.Step();
  absl::Notification hangs, released;
  launcher_.asked = [&](int index) {
    if (index != 0) return;
    hangs.Notify();
    released.WaitForNotification();
  };
  std::thread health([this] { supervisor_.AskHealth(); });
  hangs.WaitForNotification();
  supervisor_.Signal(SIGHUP);
  supervisor_.Step();
  EXPECT_THAT(launcher_.signals,
              ElementsAre(Pair(100, SIGHUP), Pair(200, SIGHUP)));
  launcher_.ended[200] = "signal 9";
  supervisor_.Step();
  EXPECT_EQ(Failure(1), "it ended: signal 9");
  clock_.Advance(GpuSupervisor::kFirstPause);
  supervisor_.Step();
  EXPECT_EQ(launcher_.starts[1], 2);
  released.Notify();
  health.join();
}

TEST_F(GpuSupervisorTest, TheAnswerOfAProcessThatEndedMeanwhileIsForgotten) {
  launcher_.addresses[0] = "host:1";
  supervisor_.Step();
  launcher_.asked = [this](int index) {
    if (index != 0) return;
    launcher_.ended[100] = "signal 9";
    supervisor_.Step();
  };
  supervisor_.AskHealth();
  EXPECT_EQ(Failure(0), "it ended: signal 9");
  clock_.Advance(GpuSupervisor::kFirstPause);
  supervisor_.Step();
  EXPECT_EQ(launcher_.starts[0], 2);
  launcher_.asked = [this](int index) {
    if (index != 0) return;
    launcher_.ended[101] = "signal 9";
    supervisor_.Step();
    clock_.Advance(absl::Minutes(1));
    supervisor_.Step();
  };
  supervisor_.AskHealth();
  EXPECT_EQ(launcher_.starts[0], 3);
  EXPECT_EQ(Failure(0), "it starts");
  EXPECT_THAT(supervisor_.Addresses(), IsEmpty());
}

}  // namespace
}  // namespace djinn::worker
