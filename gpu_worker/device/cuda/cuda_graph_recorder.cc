#include "gpu_worker/device/cuda/cuda_graph_recorder.h"

#include <memory>
#include <utility>

#include "ATen/cuda/CUDAGraph.h"
#include "absl/strings/str_cat.h"
#include "c10/cuda/CUDACachingAllocator.h"
#include "c10/cuda/CUDAGuard.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gpu_worker/device/torch/torch_error.h"

namespace djinn::worker {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr absl::string_view kFailed = "GRAPH_FAILED";

class CudaGraph final : public RecordedGraph {
 public:
  CudaGraph(std::unique_ptr<at::cuda::CUDAGraph> graph, uint64_t bytes)
      : graph_(std::move(graph)), bytes_(bytes) {}

  // Runs on the current stream, which is the compute stream.
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

// Returns whether the graph itself releases its pool. It does so only if its
// recording ended well; otherwise graph->pool() throws.
bool LeavesPoolItself(at::cuda::CUDAGraph& graph) {
  try {
    graph.pool();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Takes PyTorch's allocator out of the graph's pool, where it stays if CUDA
// ends a recording with an error or does not begin it. Otherwise the allocator
// would keep asking the destroyed graph which allocations belong to it.
void LeavePool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  try {
    allocator::endAllocateToPool(device, pool);
  } catch (const std::exception&) {
    // The allocator left the pool already, or never entered it.
  }
  try {
    allocator::releasePool(device, pool);
  } catch (const std::exception&) {
    // There is no such pool.
  }
}

// Cleans up after a failed recording, whose error CUDA would report again in
// the next call.
void Abandon(at::cuda::CUDAGraph& graph, c10::DeviceIndex device,
             c10::MempoolId_t pool) {
  (void)cudaGetLastError();
  if (!LeavesPoolItself(graph)) LeavePool(device, pool);
}

}  // namespace

absl::Status CudaGraphRecorder::RecordNothing() {
  const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
  at::cuda::CUDAGraph graph;
  const absl::Status status = CatchTorch(kFailed, [&] {
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    graph.capture_end();
    return absl::OkStatus();
  });
  if (!status.ok()) Abandon(graph, compute_.device_index(), pool);
  return status;
}

void CudaGraphRecorder::Recover() {
  // The default generator is still in recording mode and would refuse every
  // later draw and replay until a recording ends well.
  const absl::Status status = RecordNothing();
  if (status.ok()) return;
  MutexLock lock(&mu_);
  broken_ = MakeError(
      absl::StatusCode::kUnavailable, "DEVICE_BROKEN",
      absl::StrCat("the device cannot be used any more by this worker: a "
                   "recording failed and could not be ended: ",
                   status.message()));
}

absl::Status CudaGraphRecorder::Health() {
  MutexLock lock(&mu_);
  return broken_;
}

absl::StatusOr<Recording> CudaGraphRecorder::Record(
    GraphBody body, absl::Span<const c10::Storage> /*written*/) {
  Recording recording;
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
  const ComputeGate::Hold hold(&gate_);
  const c10::cuda::CUDAStreamGuard stream(compute_);
  // Forbids only this thread to wait for the device, because other threads keep
  // uploading meanwhile.
  const absl::Status begun = CatchTorch(kFailed, [&] {
    graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    return absl::OkStatus();
  });
  if (!begun.ok()) {
    Abandon(*graph, compute_.device_index(), pool);
    graph = nullptr;
    Recover();
    return begun;
  }
  const absl::Status asked =
      CatchTorch(kFailed, [&] { return body(&recording.made); });
  // Ends the recording even if the body failed, or the stream would stay in it.
  const absl::Status ended = CatchTorch(kFailed, [&] {
    graph->capture_end();
    return absl::OkStatus();
  });
  if (!ended.ok()) {
    // The body's results lie in the pool.
    recording.made.clear();
    Abandon(*graph, compute_.device_index(), pool);
    graph = nullptr;
    Recover();
  }
  DJINN_RETURN_IF_ERROR(asked);
  DJINN_RETURN_IF_ERROR(ended);
  DJINN_RETURN_IF_ERROR(CatchTorch(kFailed, [&] {
    const uint64_t bytes = PoolBytes(pool);
    recording.graph = std::make_unique<CudaGraph>(std::move(graph), bytes);
    return absl::OkStatus();
  }));
  return recording;
}

}  // namespace djinn::worker
