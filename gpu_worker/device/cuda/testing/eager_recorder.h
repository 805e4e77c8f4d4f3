// A recorder for an accelerator without device graphs. Each replay calls the
// body again, and copies its results to where they lay when it was recorded.
#ifndef GPU_WORKER_DEVICE_CUDA_TESTING_EAGER_RECORDER_H_
#define GPU_WORKER_DEVICE_CUDA_TESTING_EAGER_RECORDER_H_

#include <cstdint>

#include "gpu_worker/device/cuda/graph_recorder.h"

namespace djinn::worker {

class EagerRecorder final : public GraphRecorder {
 public:
  absl::StatusOr<Recording> Record(
      GraphBody body, absl::Span<const c10::Storage> written) override;

  // Make the next recordings fail: at once, or after the body was called.
  void Refuse(absl::Status status) { refused_ = std::move(status); }
  void FailAtTheEnd(absl::Status status) { fails_ = std::move(status); }
  uint64_t recorded() const { return recorded_; }
  uint64_t replayed() const { return replayed_; }
  uint64_t alive() const { return alive_; }

 private:
  friend class EagerGraph;

  absl::Status refused_;
  absl::Status fails_;
  uint64_t recorded_ = 0;
  uint64_t replayed_ = 0;
  uint64_t alive_ = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_TESTING_EAGER_RECORDER_H_
