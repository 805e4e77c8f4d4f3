// Defines what a device that works behind streams needs from its driver.
// Implementations: CUDA (cuda_accelerator.h), and one for tests that executes
// the commands of a stream as late as it may (testing/fake_accelerator.h).
#ifndef GPU_WORKER_DEVICE_CUDA_ACCELERATOR_H_
#define GPU_WORKER_DEVICE_CUDA_ACCELERATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ATen/core/Generator.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"
#include "c10/core/Storage.h"
#include "gpu_worker/device/cuda/graph_recorder.h"

namespace djinn::worker {

// A stream executes its commands in the order in which they were enqueued. Only
// events order the commands of different streams.
enum class StreamId : uint8_t {
  kCompute,  // all operators, in the order in which the host calls them
  kCopyIn,   // bytes from the host
  kCopyOut   // bytes for the host
};

// A point in a stream. The event completes when the stream has executed all
// commands before it.
class AcceleratorEvent {
 public:
  virtual ~AcceleratorEvent() = default;
};
using EventPtr = std::shared_ptr<AcceleratorEvent>;

// Thread-safe. Functions that return no status may throw c10::Error.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // Returns "cuda:0".
  virtual std::string name() const = 0;
  // As Device::bus_id().
  virtual std::string bus_id() const { return ""; }
  virtual c10::Device device() const = 0;
  virtual uint64_t memory_bytes() const = 0;

  // Returns memory that belongs to the stream. Commands of the stream for an
  // earlier owner may still use the memory, so other streams wait for an event
  // recorded now or later.
  virtual c10::Storage Allocate(uint64_t bytes, StreamId stream) = 0;
  // Says that the stream uses the storage. Once freed, its memory is not reused
  // until the stream has executed the commands enqueued before that.
  virtual void UsedBy(const c10::Storage& storage, StreamId stream) = 0;
  // Returns host memory from and to which streams copy without the host.
  virtual std::shared_ptr<char> AllocatePinned(uint64_t bytes) = 0;

  // Enqueues a copy and does not wait. Either side may be pinned host memory.
  virtual void Copy(void* to, const void* from, uint64_t bytes,
                    StreamId stream) = 0;
  virtual void Zero(void* to, uint64_t bytes, StreamId stream) = 0;
  virtual EventPtr Record(StreamId stream) = 0;
  // Makes the commands enqueued from now on wait for the event.
  virtual void Wait(StreamId stream, const EventPtr& event) = 0;

  // Returns whether the event has completed; does not wait.
  virtual bool HasCome(const EventPtr& event) = 0;
  // Returns when the event has completed, or a command before it has failed.
  virtual absl::Status Await(const EventPtr& event) = 0;
  // Returns an error once this process cannot use the accelerator any more.
  virtual absl::Status Health() = 0;
  // Returns the memory that no process uses, with what this one keeps for later
  // allocations.
  virtual absl::StatusOr<uint64_t> AvailableBytes() = 0;

  // While the result lives, operators that this thread calls are enqueued on
  // the compute stream.
  class ComputeScope {
   public:
    virtual ~ComputeScope() = default;
  };
  virtual std::unique_ptr<ComputeScope> EnterCompute() = 0;

  // Return generators as TorchTarget's functions.
  virtual const at::Generator& ThreadGenerator() = 0;
  virtual at::Generator DefaultGenerator() = 0;
  // Checks a generator's state as OperatorLibrary::CheckGenerator().
  virtual absl::Status CheckGenerator(absl::string_view state) = 0;

  // Returns null if the accelerator cannot record device graphs.
  virtual GraphRecorder* recorder() = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_ACCELERATOR_H_
