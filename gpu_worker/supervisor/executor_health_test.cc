// Tests what the supervisor and its executors tell each other of health.
#include <optional>
#include <utility>

#include "gmock/gmock.h"
#include "gpu_worker/supervisor/supervisor.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::SizeIs;

class ExecutorHealthTest : public SupervisorTest {
 protected:
  void SayAvailable(size_t index, uint64_t bytes) {
    v1::FromExecutor message;
    message.mutable_health()->set_available_bytes(bytes);
    executor(index).Send(message);
    Step();
  }
};

TEST_F(ExecutorHealthTest, AvailableMemoryIsTheMostThatAnExecutorSays) {
  Step();
  EXPECT_EQ(supervisor_.available_bytes(), 0u);
  executor(0).SayReady();
  Step();
  SayAvailable(0, 500);
  Lease("red", "l1");
  ASSERT_THAT(launcher_.executors, SizeIs(2));
  executor(1).SayReady();
  Step();
  SayAvailable(1, 700);
  EXPECT_EQ(supervisor_.available_bytes(), 700u);
  SayAvailable(1, 300);
  EXPECT_EQ(supervisor_.available_bytes(), 500u);
  // What an executor said ends with it.
  executor(0).Die();
  Step();
  EXPECT_EQ(supervisor_.available_bytes(), 300u);
}

}  // namespace
}  // namespace djinn::worker
