#include "gpu_worker/device/cuda/cuda_accelerator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ATen/Context.h"
#include "ATen/cuda/CUDAGeneratorImpl.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "c10/cuda/CUDACachingAllocator.h"
#include "c10/cuda/CUDAEvent.h"
#include "c10/cuda/CUDAException.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "cuda_runtime_api.h"
#include "gpu_worker/device/cuda/compute_gate.h"
#include "gpu_worker/device/cuda/cuda_graph_recorder.h"
#include "gpu_worker/device/cuda/philox_state.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// The fraction of the initially free memory that sessions get. The rest is for
// operators' temporaries, libraries' workspaces and CUDA itself.
constexpr double kUsedMemory = 0.85;

// The reason of errors after which the process cannot use the GPU any more.
constexpr absl::string_view kDeviceBroken = "DEVICE_BROKEN";

// Returns whether the process can never use the GPU again after the error: a
// kernel accessed memory outside its own, asserted, or the device itself
// failed.
bool IsFatal(cudaError_t error) {
  switch (error) {
    case cudaErrorAssert:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

// Returns Unavailable (DEVICE_BROKEN) for fatal errors, ResourceExhausted
// (OUT_OF_MEMORY) if memory is lacking, Internal (DEVICE_FAILED) otherwise. The
// text names `device`.
absl::Status StatusOfCuda(cudaError_t error, absl::string_view device) {
  if (error == cudaSuccess) return absl::OkStatus();
  const char* const text = cudaGetErrorString(error);
  if (IsFatal(error)) {
    return MakeError(
        absl::StatusCode::kUnavailable, kDeviceBroken,
        absl::StrCat(device,
                     " cannot be used any more by this worker: ", text));
  }
  if (error == cudaErrorMemoryAllocation) {
    return MakeError(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                     absl::StrCat(device, ": ", text));
  }
  return MakeError(absl::StatusCode::kInternal, "DEVICE_FAILED",
                   absl::StrCat(device, ": ", text));
}

struct Event final : AcceleratorEvent {
  c10::cuda::CUDAEvent event;
};

c10::cuda::CUDAEvent& EventOf(const EventPtr& event) {
  return static_cast<Event&>(*event).event;
}

// Frees memory without throwing. To free memory that several streams used,
// PyTorch records events, which throws on a broken device. In a storage's
// destructor the exception would end the process before it has reported
// anything. The memory of a broken device is lost anyway.
void Free(void* memory) {
  try {
    allocator::raw_delete(memory);
  } catch (const std::exception&) {
    (void)cudaGetLastError();
  }
}

struct Scope final : Accelerator::ComputeScope {
  Scope(c10::cuda::CUDAStream stream, ComputeGate* gate)
      : pass(gate), guard(stream) {}
  const ComputeGate::Pass pass;
  const c10::cuda::CUDAStreamGuard guard;
};

// Returns the device's PCI address; empty when CUDA does not tell it.
std::string BusIdOf(int ordinal) {
  char text[32] = {};
  if (cudaDeviceGetPCIBusId(text, sizeof(text), ordinal) == cudaSuccess) {
    return text;
  }
  (void)cudaGetLastError();
  return "";
}

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator(c10::DeviceIndex ordinal, uint64_t memory_bytes)
      : device_(c10::kCUDA, ordinal),
        name_(absl::StrCat("cuda:", ordinal)),
        bus_id_(BusIdOf(ordinal)),
        memory_bytes_(memory_bytes),
        compute_(NewStream(ordinal)),
        copy_in_(NewStream(ordinal)),
        copy_out_(NewStream(ordinal)),
        recorder_(compute_, &gate_) {}

  std::string name() const override { return name_; }
  std::string bus_id() const override { return bus_id_; }
  c10::Device device() const override { return device_; }
  uint64_t memory_bytes() const override { return memory_bytes_; }

  c10::Storage Allocate(uint64_t bytes, StreamId stream) override {
    TORCH_CHECK_WITH(OutOfMemoryError, bytes <= INT64_MAX,
                     "out of memory: asked ", bytes);
    c10::DataPtr memory(nullptr, device_);
    if (bytes > 0) {
      const ComputeGate::Pass pass(stream == StreamId::kCompute ? &gate_
                                                                : nullptr);
      const c10::cuda::CUDAStreamGuard guard(StreamOf(stream));
      void* const raw = allocator::get()->allocate(bytes).release_context();
      memory = c10::DataPtr(raw, raw, &Free, device_);
    }
    return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
        std::move(memory), allocator::get(), /*resizable=*/false));
  }

  void UsedBy(const c10::Storage& storage, StreamId stream) override {
    if (storage.nbytes() == 0) return;
    // The allocator recognizes its own memory by its own deleter.
    void* const raw = storage.mutable_data();
    if (storage.data_ptr().get_deleter() != &Free) {
      allocator::recordStream(storage.data_ptr(), StreamOf(stream));
      return;
    }
    c10::DataPtr lent(raw, raw, allocator::get()->raw_deleter(), device_);
    try {
      allocator::recordStream(lent, StreamOf(stream));
    } catch (...) {
      lent.release_context();
      throw;
    }
    lent.release_context();
  }

  std::shared_ptr<char> AllocatePinned(uint64_t bytes) override {
    const c10::cuda::CUDAGuard guard(device_.index());
    void* memory = nullptr;
    C10_CUDA_CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    return std::shared_ptr<char>(static_cast<char*>(memory), [](char* gone) {
      // CUDA may be gone already when the process ends.
      if (cudaFreeHost(gone) != cudaSuccess) (void)cudaGetLastError();
    });
  }

  void Copy(void* to, const void* from, uint64_t bytes,
            StreamId stream) override {
    if (bytes == 0) return;
    InStream(stream, [&](cudaStream_t raw) {
      C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, raw));
    });
  }

  void Zero(void* to, uint64_t bytes, StreamId stream) override {
    if (bytes == 0) return;
    InStream(stream, [&](cudaStream_t raw) {
      C10_CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, raw));
    });
  }

  EventPtr Record(StreamId stream) override {
    auto event = std::make_shared<Event>();
    InStream(stream,
             [&](cudaStream_t) { event->event.record(StreamOf(stream)); });
    return event;
  }

  void Wait(StreamId stream, const EventPtr& event) override {
    InStream(stream,
             [&](cudaStream_t) { EventOf(event).block(StreamOf(stream)); });
  }

  bool HasCome(const EventPtr& event) override {
    return EventOf(event).query();
  }

  absl::Status Await(const EventPtr& event) override {
    return Cleared(cudaEventSynchronize(EventOf(event).event()));
  }

  absl::Status Health() override {
    DJINN_RETURN_IF_ERROR(recorder_.Health());
    // Every call returns a fatal error again, and this call has no other
    // effect. It does not use the compute stream, which may be in a recording.
    const absl::Status status = Cleared(cudaStreamQuery(copy_out_.stream()));
    return ErrorReason(status) == kDeviceBroken ? status : absl::OkStatus();
  }

  absl::StatusOr<uint64_t> AvailableBytes() override {
    const c10::cuda::CUDAGuard guard(device_.index());
    size_t free = 0, total = 0;
    DJINN_RETURN_IF_ERROR(Cleared(cudaMemGetInfo(&free, &total)));
    using c10::CachingAllocator::StatType;
    constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
    const auto stats =
        c10::cuda::CUDACachingAllocator::getDeviceStats(device_.index());
    const int64_t kept = stats.reserved_bytes[kAll].current -
                         stats.allocated_bytes[kAll].current;
    return free + static_cast<uint64_t>(std::max<int64_t>(kept, 0));
  }

  std::unique_ptr<ComputeScope> EnterCompute() override {
    return std::make_unique<Scope>(compute_, &gate_);
  }

  const at::Generator& ThreadGenerator() override {
    // A process has one such device, so a generator per thread suffices.
    thread_local const at::Generator own =
        at::cuda::detail::createCUDAGenerator(device_.index());
    return own;
  }
  at::Generator DefaultGenerator() override {
    return at::cuda::detail::getDefaultCUDAGenerator(device_.index());
  }
  absl::Status CheckGenerator(absl::string_view state) override {
    return CheckPhiloxState(state);
  }

  GraphRecorder* recorder() override { return &recorder_; }

 private:
  // Clears the thread's last error. CUDA keeps it, "not ready" included, until
  // some call takes it; otherwise PyTorch would report it after an unrelated
  // launch.
  absl::Status Cleared(cudaError_t error) const {
    if (error != cudaSuccess) (void)cudaGetLastError();
    return StatusOfCuda(error, name_);
  }

  static c10::cuda::CUDAStream NewStream(c10::DeviceIndex ordinal) {
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false, ordinal);
  }

  c10::cuda::CUDAStream StreamOf(StreamId stream) const {
    switch (stream) {
      case StreamId::kCompute:
        return compute_;
      case StreamId::kCopyIn:
        return copy_in_;
      case StreamId::kCopyOut:
        break;
    }
    return copy_out_;
  }

  template <typename Call>
  void InStream(StreamId stream, Call call) {
    const c10::cuda::CUDAGuard guard(device_.index());
    if (stream == StreamId::kCompute) {
      const ComputeGate::Pass pass(&gate_);
      call(compute_.stream());
    } else {
      call(StreamOf(stream).stream());
    }
  }

  const c10::Device device_;
  const std::string name_;
  const std::string bus_id_;
  const uint64_t memory_bytes_;
  const c10::cuda::CUDAStream compute_;
  const c10::cuda::CUDAStream copy_in_;
  const c10::cuda::CUDAStream copy_out_;
  ComputeGate gate_;
  CudaGraphRecorder recorder_;
};

// Sets this thread to a mode of recording in which it may wait for another
// stream.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Has PyTorch's allocator zero what it takes from the driver, before it hands
// any of it out. The allocator calls this with its lock held; if it throws, the
// memory is lost and the allocation fails.
void ZeroWhatIsTaken(c10::DeviceIndex index) {
  cudaStream_t stream = nullptr;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  allocator::attachAllocatorTraceTracker(
      [index, stream](const c10::CachingDeviceAllocator::TraceEntry& entry) {
        using Entry = c10::CachingDeviceAllocator::TraceEntry;
        if (entry.device_ != index || (entry.action_ != Entry::SEGMENT_ALLOC &&
                                       entry.action_ != Entry::SEGMENT_MAP)) {
          return;
        }
        const RelaxedCapture relaxed;
        C10_CUDA_CHECK(cudaMemsetAsync(reinterpret_cast<void*>(entry.addr_), 0,
                                       entry.size_, stream));
        C10_CUDA_CHECK(cudaStreamSynchronize(stream));
      });
}

absl::Status Unavailable(int ordinal, absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE",
                   absl::StrCat("cuda:", ordinal, " cannot be used: ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Accelerator>> MakeCudaAccelerator(
    const CudaAcceleratorOptions& options) {
  const int ordinal = options.ordinal;
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) {
    (void)cudaGetLastError();
    return Unavailable(ordinal, absl::StrCat("no driver, or none for CUDA ",
                                             CUDART_VERSION / 1000, ".",
                                             CUDART_VERSION % 1000 / 10, ": ",
                                             cudaGetErrorString(counted)));
  }
  if (ordinal < 0 || ordinal >= count) {
    return Unavailable(ordinal,
                       absl::StrCat("this process sees ", count,
                                    count == 1 ? " device" : " devices"));
  }
  std::unique_ptr<Accelerator> accelerator;
  DJINN_RETURN_IF_ERROR(CatchTorch("DEVICE_UNAVAILABLE", [&]() -> absl::Status {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    const auto index = static_cast<c10::DeviceIndex>(ordinal);
    const c10::cuda::CUDAGuard guard(index);
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    if (options.process_bytes > 0) {
      // Another allocator reports nothing of what it takes.
      if (allocator::get()->name() != "native") {
        return Unavailable(
            ordinal, absl::StrCat("tenants have processes of their own, which "
                                  "PyTorch's allocator ",
                                  allocator::get()->name(),
                                  " does not support: unset "
                                  "PYTORCH_CUDA_ALLOC_CONF"));
      }
      ZeroWhatIsTaken(index);
      allocator::setMemoryFraction(
          std::min(1.0, static_cast<double>(options.process_bytes) /
                            static_cast<double>(total)),
          index);
    }
    accelerator = std::make_unique<CudaAccelerator>(
        index, static_cast<uint64_t>(static_cast<double>(free) * kUsedMemory));
    return absl::OkStatus();
  }));
  return accelerator;
}

}  // namespace djinn::worker
