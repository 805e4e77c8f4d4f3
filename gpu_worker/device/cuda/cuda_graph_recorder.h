// Records the compute stream with CUDA's stream capture.
#ifndef GPU_WORKER_DEVICE_CUDA_CUDA_GRAPH_RECORDER_H_
#define GPU_WORKER_DEVICE_CUDA_CUDA_GRAPH_RECORDER_H_

#include "c10/cuda/CUDAStream.h"
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

 private:
  const c10::cuda::CUDAStream compute_;
  ComputeGate& gate_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_CUDA_GRAPH_RECORDER_H_
