// An accelerator of the host's memory that does what its streams were asked as
// late as it may: when somebody waits for it. So what should have waited, and
// did not, finds what was there before, every time.
//
// Operators that a thread calls are executed at once, as the last thing that
// the compute stream was asked: entering it does what comes before. The stream
// counts them as done only when it is waited for: what is read of memory that
// they may write, and not behind them, is counted (read_too_early()).
//
// What it cannot show is a copy to memory that operators called earlier still
// read.
//
// Thread-safe.
#ifndef GPU_WORKER_DEVICE_CUDA_TESTING_FAKE_ACCELERATOR_H_
#define GPU_WORKER_DEVICE_CUDA_TESTING_FAKE_ACCELERATOR_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "gpu_worker/device/cuda/accelerator.h"

namespace djinn::worker {

class FakeAccelerator final : public Accelerator {
 public:
  FakeAccelerator();
  ~FakeAccelerator() override;

  std::string name() const override { return "fake:0"; }
  c10::Device device() const override { return c10::Device(c10::kCPU); }
  uint64_t memory_bytes() const override { return uint64_t{1} << 30; }

  c10::Storage Allocate(uint64_t bytes, StreamId stream) override;
  void UsedBy(const c10::Storage& storage, StreamId stream) override;
  std::shared_ptr<char> AllocatePinned(uint64_t bytes) override;
  void Copy(void* to, const void* from, uint64_t bytes,
            StreamId stream) override;
  void Zero(void* to, uint64_t bytes, StreamId stream) override;
  EventPtr Record(StreamId stream) override;
  void Wait(StreamId stream, const EventPtr& event) override;
  bool HasCome(const EventPtr& event) override;
  absl::Status Await(const EventPtr& event) override;
  absl::Status Health() override;
  std::unique_ptr<ComputeScope> EnterCompute() override;
  const at::Generator& ThreadGenerator() override;
  at::Generator DefaultGenerator() override;
  absl::Status CheckGenerator(absl::string_view state) override;
  GraphRecorder* recorder() override { return recorder_; }

  void SetRecorder(GraphRecorder* recorder) { recorder_ = recorder; }
  // Memory that is free, and that no stream has anything to do with, is given
  // out again, the last first.
  void ReuseMemory();
  // Await() and Health() say so from now on.
  void Break(absl::Status status);

  // What the stream was asked and has not done.
  size_t pending(StreamId stream) const;
  uint64_t waits() const;
  uint64_t pinned_blocks() const;
  // Copies for the host that were executed before operators that had been
  // called earlier, and might write what they read, were done.
  uint64_t read_too_early() const;
  // Memory that came free while a stream, which it was not said to be used by,
  // still had something to do with it.
  uint64_t freed_too_early() const;

 private:
  struct State;

  const std::shared_ptr<State> state_;
  GraphRecorder* recorder_ = nullptr;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_TESTING_FAKE_ACCELERATOR_H_
