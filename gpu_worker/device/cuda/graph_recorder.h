// Records commands of a device, so that they can be replayed at once.
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

// Recorded commands and their memory. Operands and results have the addresses
// that they had during the recording.
class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;
  // Enqueues all commands on the compute stream. May throw c10::Error.
  virtual void Replay() = 0;
  // Returns the bytes of memory that belongs to the graph.
  virtual uint64_t bytes() const = 0;
};

// Calls operators, and appends the storages of the results that are wanted. It
// may be called more than once, and does the same every time.
using GraphBody = std::function<absl::Status(std::vector<c10::Storage>*)>;

struct Recording {
  std::unique_ptr<RecordedGraph> graph;
  // The storages that the body appended. Each Replay() fills them.
  std::vector<c10::Storage> made;
};

// Belongs to a single thread.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  // Records the commands of the body without executing them. `written` are the
  // storages that the body writes besides its results. After an error, of the
  // body or of the recording, everything is as before; if that is impossible,
  // the accelerator's Health() reports it from then on.
  virtual absl::StatusOr<Recording> Record(
      GraphBody body, absl::Span<const c10::Storage> written) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_GRAPH_RECORDER_H_
