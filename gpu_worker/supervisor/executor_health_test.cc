// Tests what the supervisor and its executors tell each other of health.
#include <sys/socket.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gpu_worker/supervisor/supervision_link.h"
#include "gpu_worker/supervisor/supervisor.h"
#include "gpu_worker/supervisor/supervisor_fixture.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ExecutorHealthTest : public SupervisorTest {
 protected:
  void SayAvailable(size_t index, uint64_t bytes) {
    v1::FromExecutor message;
    message.mutable_health()->set_available_bytes(bytes);
    executor(index).Send(message);
    Step();
  }
  // Returns what the executor was told of the worker's readiness.
  std::vector<bool> Told(size_t index) {
    std::vector<bool> told;
    for (;;) {
      const std::optional<v1::ToExecutor> message = executor(index).Next();
      if (!message.has_value()) return told;
      if (message->has_serving()) told.push_back(message->serving());
    }
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
  // The bytes of an executor that has ended do not count.
  executor(0).Die();
  Step();
  EXPECT_EQ(supervisor_.available_bytes(), 300u);
}

TEST_F(ExecutorHealthTest, ReadinessReachesRunningAndLaterExecutors) {
  Step();
  supervisor_.SetServing(false);
  Step();
  EXPECT_THAT(Told(0), ElementsAre(false));
  supervisor_.SetServing(true);
  executor(0).SayReady();
  Step();
  EXPECT_THAT(Told(0), ElementsAre(true));
  // The tenant takes the spare executor, and another one starts.
  Lease("red", "l1");
  ASSERT_THAT(launcher_.executors, SizeIs(2));
  const std::optional<v1::ToExecutor> first = executor(1).Next();
  ASSERT_TRUE(first.has_value() && first->has_setup());
  EXPECT_THAT(Told(1), ElementsAre(true));
  supervisor_.SetServing(false);
  Step();
  EXPECT_THAT(Told(0), ElementsAre(false));
  EXPECT_THAT(Told(1), ElementsAre(false));
}

TEST_F(ExecutorHealthTest, ExecutorOfAWorkerThatIsNotReadyIsToldNothing) {
  Step();
  EXPECT_THAT(Told(0), IsEmpty());
}

TEST(SupervisionLinkHealthTest, ReadinessEndsTheWaitForTheEnd) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  SupervisionLink link{Descriptor(ends[1])};
  const auto stream = link.Open();
  std::thread reader([&] {
    v1::DesiredState desired;
    EXPECT_FALSE(stream->Read(&desired));
  });
  bool serving = false;
  {
    const Descriptor supervisor(ends[0]);
    for (const bool said : {true, false}) {
      v1::ToExecutor message;
      message.set_serving(said);
      std::string frame = EncodeFrame(message);
      EXPECT_TRUE(WriteSome(supervisor.get(), &frame).ok());
      while (serving != said) {
        EXPECT_FALSE(link.AwaitEnd(absl::InfiniteDuration(), &serving));
      }
    }
  }
  while (!link.AwaitEnd(absl::InfiniteDuration(), &serving)) {
  }
  reader.join();
}

}  // namespace
}  // namespace djinn::worker
