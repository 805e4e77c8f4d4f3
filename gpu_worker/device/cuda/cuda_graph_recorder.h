// Records the compute stream with CUDA's stream capture.
#ifndef GPU_WORKER_DEVICE_CUDA_CUDA_GRAPH_RECORDER_H_
#define GPU_WORKER_DEVICE_CUDA_CUDA_GRAPH_RECORDER_H_

#include "absl/status/status.h"
#include "c10/cuda/CUDAStream.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/cuda/compute_gate.h"
#include "gpu_worker/device/cuda/graph_recorder.h"

namespace djinn::worker {

class CudaGraphRecorder final : public GraphRecorder {
 public:
  // `gate`, which outlives this, is `compute`'s.
  CudaGraphRecorder(c10::cuda::CUDAStream compute, ComputeGate* gate)
      : compute_(compute), gate_(*gate) {}

  // Every graph has a pool of its own, so that what one made stays while
  // another is replayed.
  absl::StatusOr<Recording> Record(
      GraphBody body, absl::Span<const c10::Storage> written) override;

  // Not OK once a recording that failed could not be ended. Thread-safe.
  absl::Status Health();

 private:
  absl::Status RecordNothing();
  // Gives PyTorch's generator and allocator back to whoever records nothing.
  void Recover();

  const c10::cuda::CUDAStream compute_;
  ComputeGate& gate_;
  Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_CUDA_GRAPH_RECORDER_H_
