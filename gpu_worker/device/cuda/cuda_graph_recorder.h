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
  // `gate` is the gate of `compute` and outlives this.
  CudaGraphRecorder(c10::cuda::CUDAStream compute, ComputeGate* gate)
      : compute_(compute), gate_(*gate) {}

  // Records as GraphRecorder::Record(). Every graph has a memory pool of its
  // own, so that one graph's results stay while another is replayed.
  absl::StatusOr<Recording> Record(
      GraphBody body, absl::Span<const c10::Storage> written) override;

  // Returns an error once a failed recording could not be ended. Thread-safe.
  absl::Status Health();

 private:
  absl::Status RecordNothing();
  // Takes PyTorch's generator and allocator out of recording mode.
  void Recover();

  const c10::cuda::CUDAStream compute_;
  ComputeGate& gate_;
  Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_CUDA_GRAPH_RECORDER_H_
