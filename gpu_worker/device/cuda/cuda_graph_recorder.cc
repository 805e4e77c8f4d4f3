#include "gpu_worker/device/cuda/cuda_graph_recorder.h"

#include <memory>
#include <utility>

#include "ATen/cuda/CUDAGraph.h"
#include "c10/cuda/CUDACachingAllocator.h"
#include "c10/cuda/CUDAGuard.h"
#include "common/status_macros.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr absl::string_view kFailed = "GRAPH_FAILED";

class CudaGraph final : public RecordedGraph {
 public:
  CudaGraph(std::unique_ptr<at::cuda::CUDAGraph> graph, uint64_t bytes)
      : graph_(std::move(graph)), bytes_(bytes) {}

  // On the current stream, which is the compute stream.
  void Replay() override { graph_->replay(); }
  uint64_t bytes() const override { return bytes_; }

 private:
  const std::unique_ptr<at::cuda::CUDAGraph> graph_;
  const uint64_t bytes_;
};

uint64_t PoolBytes(c10::MempoolId_t pool) {
  uint64_t bytes = 0;
  for (const auto& segment :
       allocator::snapshot(pool, /*include_traces=*/false).segments) {
    bytes += segment.total_size;
  }
  return bytes;
}

// PyTorch leaves its allocator in the graph's pool when CUDA ends a recording
// with an error, or does not begin it.
void LeavePool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  try {
    allocator::endAllocateToPool(device, pool);
    // Not if that throws: the graph lets go of the pool by itself.
    allocator::releasePool(device, pool);
  } catch (const std::exception&) {
    // It was left already.
  }
}

}  // namespace

absl::StatusOr<Recording> CudaGraphRecorder::Record(
    GraphBody body, absl::Span<const c10::Storage> /*written*/) {
  Recording recording;
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  const ComputeGate::Hold hold(&gate_);
  const c10::cuda::CUDAStreamGuard stream(compute_);
  // Other threads go on uploading meanwhile: only this one must not wait.
  const absl::Status begun = CatchTorch(kFailed, [&] {
    graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    return absl::OkStatus();
  });
  if (!begun.ok()) {
    LeavePool(compute_.device_index(), graph->pool());
    return begun;
  }
  const absl::Status asked =
      CatchTorch(kFailed, [&] { return body(&recording.made); });
  // Whatever the body did, or the stream would go on recording.
  const absl::Status ended = CatchTorch(kFailed, [&] {
    graph->capture_end();
    return absl::OkStatus();
  });
  if (!ended.ok()) {
    LeavePool(compute_.device_index(), graph->pool());
    // An error of recording is said once more by the next call.
    (void)cudaGetLastError();
  }
  DJINN_RETURN_IF_ERROR(asked);
  DJINN_RETURN_IF_ERROR(ended);
  DJINN_RETURN_IF_ERROR(CatchTorch(kFailed, [&] {
    const uint64_t bytes = PoolBytes(graph->pool());
    recording.graph = std::make_unique<CudaGraph>(std::move(graph), bytes);
    return absl::OkStatus();
  }));
  return recording;
}

}  // namespace djinn::worker
