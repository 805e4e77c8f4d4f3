#include "client_lib/session/multi_worker/single_worker_gate.h"

#include <atomic>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace djinn {
namespace {

using Pass = SingleWorkerGate::Pass;

TEST(SingleWorkerGateTest, ItIsOpenUntilItIsClosed) {
  SingleWorkerGate gate;
  EXPECT_TRUE(Pass(&gate));
  EXPECT_FALSE(gate.closed());
  gate.Close();
  EXPECT_TRUE(gate.closed());
  EXPECT_FALSE(Pass(&gate));
}

TEST(SingleWorkerGateTest, ItClosesBehindTheCallsInside) {
  SingleWorkerGate gate;
  auto first = std::make_unique<Pass>(&gate);
  auto second = std::make_unique<Pass>(&gate);
  std::atomic<int> left = 0;
  std::thread closer([&] {
    gate.Close();
    EXPECT_EQ(left, 2);
  });
  // No further call gets in while Close() waits.
  while (!gate.closed()) std::this_thread::yield();
  EXPECT_FALSE(Pass(&gate));
  ++left;
  first = nullptr;
  ++left;
  second = nullptr;
  closer.join();
}

TEST(SingleWorkerGateTest, NoCallIsInsideOnceItIsClosed) {
  SingleWorkerGate gate;
  std::atomic<int> inside = 0;
  std::thread caller([&] {
    for (;;) {
      const Pass pass(&gate);
      if (!pass) break;
      ++inside;
      --inside;
    }
  });
  gate.Close();
  EXPECT_EQ(inside, 0);
  caller.join();
}

}  // namespace
}  // namespace djinn
