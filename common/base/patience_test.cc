#include "common/base/patience.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(PatienceTest, WaitsUntilItIsTold) {
  Mutex mu;
  CondVar changed;
  bool came = false;
  std::thread other([&] {
    MutexLock lock(&mu);
    came = true;
    changed.SignalAll();
  });
  {
    MutexLock lock(&mu);
    for (Patience patience; !came;) patience.Wait(&changed, &mu);
  }
  other.join();
}

TEST(PatienceTest, YieldsUntilItIsSo) {
  std::atomic<bool> came{false};
  std::thread other([&] { came = true; });
  for (Patience patience; !came;) patience.Yield();
  other.join();
}

TEST(PatienceTest, HasLessLeftAsTimePasses) {
  const Patience patience;
  const absl::Duration left = patience.Left();
  EXPECT_LE(left, Patience::kLong);
  EXPECT_LE(patience.Left(), left);
}

TEST(PatienceDeathTest, EndsWhereItIsInVain) {
  EXPECT_DEATH(
      {
        for (Patience patience(absl::ZeroDuration()); true;) patience.Yield();
      },
      "patience_test.cc:[0-9]+: waited in vain");
}

}  // namespace
}  // namespace djinn
