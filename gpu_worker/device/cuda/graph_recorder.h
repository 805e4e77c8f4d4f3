// Records what a device is asked, to have it done again at once.
#ifndef GPU_WORKER_DEVICE_CUDA_GRAPH_RECORDER_H_
#define GPU_WORKER_DEVICE_CUDA_GRAPH_RECORDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/core/Storage.h"

namespace djinn::worker {

// What was recorded, with its memory. Operands and results have the addresses
// that they had.
class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;
  // Asks the compute stream for all of it. May throw c10::Error.
  virtual void Replay() = 0;
  // Of the memory that is the graph's own.
  virtual uint64_t bytes() const = 0;
};

// Calls operators, and appends the storages of what they make that is wanted.
// It may be called more than once, and does the same every time.
using GraphBody = std::function<absl::Status(std::vector<c10::Storage>*)>;

struct Recording {
  std::unique_ptr<RecordedGraph> graph;
  // What the body made: filled by each Replay().
  std::vector<c10::Storage> made;
};

// One thread.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  // Nothing that the body asks is done. `written` are the storages that it
  // writes besides what it makes. An error, the body's or one of recording,
  // leaves things as they were; where it cannot, the accelerator's Health()
  // says so from then on.
  virtual absl::StatusOr<Recording> Record(
      GraphBody body, absl::Span<const c10::Storage> written) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_GRAPH_RECORDER_H_
