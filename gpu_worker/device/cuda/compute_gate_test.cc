#include "gpu_worker/device/cuda/compute_gate.h"

#include <atomic>
#include <optional>
#include <thread>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Hangs, until the test's time is up, where nobody comes to wait.
void AwaitOneThatWaits(const ComputeGate& gate) {
  while (gate.waiting() == 0) std::this_thread::yield();
}

TEST(ComputeGateTest, OthersWaitWhileOneRecords) {
  ComputeGate gate;
  std::atomic<bool> entered{false};
  std::thread other;
  {
    const ComputeGate::Hold hold(&gate);
    // Its own calls do not wait.
    const ComputeGate::Pass mine(&gate);
    const ComputeGate::Pass again(&gate);
    other = std::thread([&] {
      const ComputeGate::Pass pass(&gate);
      entered = true;
    });
    AwaitOneThatWaits(gate);
    EXPECT_FALSE(entered);
  }
  other.join();
  EXPECT_TRUE(entered);
}

TEST(ComputeGateTest, RecordingWaitsForThoseWithin) {
  ComputeGate gate;
  std::atomic<bool> recording{false};
  std::optional<ComputeGate::Pass> pass(&gate);
  std::thread recorder([&] {
    const ComputeGate::Hold hold(&gate);
    recording = true;
  });
  AwaitOneThatWaits(gate);
  EXPECT_FALSE(recording);
  {
    // Who is within may enter again, though somebody waits to record.
    const ComputeGate::Pass inner(&gate);
    EXPECT_FALSE(recording);
  }
  pass.reset();
  recorder.join();
  EXPECT_TRUE(recording);
}

TEST(ComputeGateTest, ThreadsPassBesideOneAnother) {
  ComputeGate gate;
  const ComputeGate::Pass mine(&gate);
  std::thread([&] { const ComputeGate::Pass theirs(&gate); }).join();
}

}  // namespace
}  // namespace djinn::worker
