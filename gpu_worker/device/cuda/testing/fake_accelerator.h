// An accelerator in host memory whose streams execute their commands as late as
// they may: when a thread waits for them. So if a command should have waited
// for another one and did not, it reads the old bytes, every time.
//
// Operators that a thread calls are executed at once, as the last commands of
// the compute stream: EnterCompute() executes the commands before them. The
// stream counts operators as done only when a thread waits for the stream. It
// also counts copies that did not wait for the operators, although these may
// write the memory that the copy reads (read_too_early()).
//
// It cannot detect a copy to memory that operators called earlier still read.
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
  absl::StatusOr<uint64_t> AvailableBytes() override { return 123 << 20; }
  std::unique_ptr<ComputeScope> EnterCompute() override;
  const at::Generator& ThreadGenerator() override;
  at::Generator DefaultGenerator() override;
  absl::Status CheckGenerator(absl::string_view state) override;
  GraphRecorder* recorder() override { return recorder_; }

  void SetRecorder(GraphRecorder* recorder) { recorder_ = recorder; }
  // Reuses memory that is free and that no stream uses any more, the last freed
  // first.
  void ReuseMemory();
  // Makes Await() and Health() return `status` from now on.
  void Break(absl::Status status);

  // Returns the number of commands that the stream has not executed.
  size_t pending(StreamId stream) const;
  uint64_t waits() const;
  uint64_t pinned_blocks() const;
  // Returns the number of copies to the host that were executed before earlier
  // operators, which might write the same memory, were done.
  uint64_t read_too_early() const;
  // Returns how often memory was freed while a stream still had commands that
  // use it, without UsedBy() having said so.
  uint64_t freed_too_early() const;

 private:
  struct State;

  const std::shared_ptr<State> state_;
  GraphRecorder* recorder_ = nullptr;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_TESTING_FAKE_ACCELERATOR_H_
