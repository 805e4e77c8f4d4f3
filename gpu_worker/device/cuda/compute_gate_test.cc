#include "gpu_worker/device/cuda/compute_gate.h"

#include <atomic>
#include <optional>
#include <thread>

#include "common/base/patience.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

void AwaitOneThatWaits(const ComputeGate& gate) {
  for (Patience patience; gate.waiting() == 0;) patience.Yield();
}

TEST(ComputeGateTest, OthersWaitWhileOneRecords) {
  ComputeGate gate;
  std::atomic<bool> entered{false};
  std::thread other;
  {
    const ComputeGate::Hold hold(&gate);
    // The recording thread's own calls do not wait.
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
    // A thread with a pass may take another while the recorder waits.
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
