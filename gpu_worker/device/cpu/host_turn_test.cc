#include "gpu_worker/device/cpu/host_turn.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// No other run of the test has it.
std::string Name() { return absl::StrCat("djinn-host-turn-test-", getpid()); }

TEST(HostTurnTest, OneAtATime) {
  std::atomic<int> measuring{0};
  std::atomic<int> turns{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < 8; ++i) {
    workers.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        const HostTurn turn(Name(), absl::Seconds(60));
        ASSERT_TRUE(turn.taken());
        EXPECT_EQ(++measuring, 1);
        ++turns;
        --measuring;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(turns, 160);
}

TEST(HostTurnTest, PatienceEnds) {
  const HostTurn first(Name(), absl::ZeroDuration());
  ASSERT_TRUE(first.taken());
  const HostTurn second(Name(), absl::Milliseconds(5));
  EXPECT_FALSE(second.taken());
  const HostTurn other(Name() + "-other", absl::ZeroDuration());
  EXPECT_TRUE(other.taken());
}

TEST(HostTurnTest, WhoeverDiesGivesItUp) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const std::string name = Name();
  const pid_t child = fork();
  if (child == 0) {
    const HostTurn turn(name, absl::ZeroDuration());
    const char taken = turn.taken() ? 1 : 0;
    if (write(ready[1], &taken, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char taken = 0;
  ASSERT_EQ(read(ready[0], &taken, 1), 1);
  EXPECT_EQ(taken, 1);
  EXPECT_FALSE(HostTurn(name, absl::ZeroDuration()).taken());
  kill(child, SIGKILL);
  EXPECT_TRUE(HostTurn(name, absl::Seconds(60)).taken());
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace djinn::worker
