#include "common/net/monitoring/readiness.h"

#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReadinessTest : public testing::Test {
 protected:
  void Fail(const std::string& failure) {
    MutexLock lock(&mu_);
    failure_ = failure;
  }
  // Waits until the listener was called so often, and returns its calls.
  std::vector<bool> Calls(size_t count) {
    MutexLock lock(&mu_);
    while (calls_.size() < count) changed_.Wait(&mu_);
    return calls_;
  }
  std::vector<std::string> Failures() {
    std::vector<std::string> failures;
    for (const ReadinessCheck& check : readiness_.Evaluate()) {
      failures.push_back(check.name + "=" + check.failure);
    }
    return failures;
  }

  Mutex mu_;
  CondVar changed_;
  std::string failure_ ABSL_GUARDED_BY(mu_) = "not reached";
  std::vector<bool> calls_ ABSL_GUARDED_BY(mu_);
  Readiness readiness_{
      [this] {
        MutexLock lock(&mu_);
        return std::vector<ReadinessCheck>{{"coordinator", failure_}};
      },
      [this](bool ready) {
        MutexLock lock(&mu_);
        calls_.push_back(ready);
        changed_.SignalAll();
      },
      absl::Milliseconds(1)};
};

TEST_F(ReadinessTest, TheListenerKnowsTheStateAtFirst) {
  MutexLock lock(&mu_);
  EXPECT_THAT(calls_, ElementsAre(false));
}

TEST_F(ReadinessTest, TheListenerHearsEachChangeOnce) {
  Fail("");
  EXPECT_THAT(Calls(2), ElementsAre(false, true));
  Fail("away again");
  EXPECT_THAT(Calls(3), ElementsAre(false, true, false));
  EXPECT_THAT(Failures(), ElementsAre("serving=", "coordinator=away again"));
}

TEST_F(ReadinessTest, OneThatLeavesIsNotReadyAtOnceAndForGood) {
  Fail("");
  Calls(2);
  readiness_.Leave("the worker stops");
  MutexLock lock(&mu_);
  EXPECT_THAT(calls_, ElementsAre(false, true, false));
}

TEST_F(ReadinessTest, MetricsHaveEveryCheck) {
  readiness_.Leave("the worker stops");
  Fail("");
  Exposition out;
  readiness_.Collect(&out);
  EXPECT_THAT(out.Text(), HasSubstr("djinn_ready{check=\"coordinator\"} 1\n"));
  EXPECT_THAT(out.Text(), HasSubstr("djinn_ready{check=\"serving\"} 0\n"));
}

}  // namespace
}  // namespace djinn
