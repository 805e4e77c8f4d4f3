// What a device that works behind streams asks of its driver. There is one
// implementation for CUDA (cuda_accelerator.h) and one for tests, which carries
// out as late as it may what a stream was asked (testing/fake_accelerator.h).
#ifndef GPU_WORKER_DEVICE_CUDA_ACCELERATOR_H_
#define GPU_WORKER_DEVICE_CUDA_ACCELERATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ATen/core/Generator.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"
#include "c10/core/Storage.h"
#include "gpu_worker/device/cuda/graph_recorder.h"

namespace djinn::worker {

// Each executes what it is asked in that order; between two of them there is
// none but for events.
enum class StreamId : uint8_t {
  kCompute,  // all operators, so that the host's order is theirs
  kCopyIn,   // bytes from the host
  kCopyOut   // bytes for the host
};

// A point in a stream.
class AcceleratorEvent {
 public:
  virtual ~AcceleratorEvent() = default;
};
using EventPtr = std::shared_ptr<AcceleratorEvent>;

// Thread-safe. What returns no status may throw c10::Error.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // "cuda:0", and as PyTorch calls it.
  virtual std::string name() const = 0;
  virtual c10::Device device() const = 0;
  virtual uint64_t memory_bytes() const = 0;

  // Memory of the stream's: it may hold what an earlier owner asked the stream
  // to do with it, so other streams wait for an event recorded now or later.
  virtual c10::Storage Allocate(uint64_t bytes, StreamId stream) = 0;
  // Keeps the storage's memory from being given out again, once it is free,
  // until the stream has done what it was asked before that.
  virtual void UsedBy(const c10::Storage& storage, StreamId stream) = 0;
  // Of the host, which streams copy from and to by themselves.
  virtual std::shared_ptr<char> AllocatePinned(uint64_t bytes) = 0;

  // Asks the stream, and does not wait. Either side may be the host's, pinned.
  virtual void Copy(void* to, const void* from, uint64_t bytes,
                    StreamId stream) = 0;
  virtual void Zero(void* to, uint64_t bytes, StreamId stream) = 0;
  virtual EventPtr Record(StreamId stream) = 0;
  // What the stream is asked from now on comes behind the event.
  virtual void Wait(StreamId stream, const EventPtr& event) = 0;

  // Whether it has; does not wait.
  virtual bool HasCome(const EventPtr& event) = 0;
  // Returns when the event has come, or what was asked before it failed.
  virtual absl::Status Await(const EventPtr& event) = 0;
  // Not OK once nothing can be asked any more in this process.
  virtual absl::Status Health() = 0;

  // While the result lives, operators that this thread calls are asked of the
  // compute stream.
  class ComputeScope {
   public:
    virtual ~ComputeScope() = default;
  };
  virtual std::unique_ptr<ComputeScope> EnterCompute() = 0;

  // As TorchTarget's.
  virtual const at::Generator& ThreadGenerator() = 0;
  virtual at::Generator DefaultGenerator() = 0;
  // As OperatorLibrary's.
  virtual absl::Status CheckGenerator(absl::string_view state) = 0;

  // Null where there are no graphs.
  virtual GraphRecorder* recorder() = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_ACCELERATOR_H_
