// Keeps the graphs of a virtual device's runs while the program exports them.
#ifndef CLIENT_LIB_SESSION_RECORDING_GRAPH_RECORDER_H_
#define CLIENT_LIB_SESSION_RECORDING_GRAPH_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "djinn/v1/graph_export.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn {

// Thread-safe. Costs one atomic load while it is off.
class GraphRecorder {
 public:
  // Limits the encoded bytes of all graphs that are kept.
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;

  explicit GraphRecorder(uint64_t max_bytes = kMaxBytes)
      : max_bytes_(max_bytes) {}
  // Returns the recorder of the process. Never destroyed.
  static GraphRecorder& Global();

  // Starts to keep graphs. Returns FailedPrecondition (EXPORT_RUNNING) while
  // another export runs.
  absl::Status Begin(int virtual_device);
  // Stops keeping graphs, and returns those added since Begin(). Returns
  // ResourceExhausted (EXPORT_TOO_LARGE) if they exceed the limit.
  absl::StatusOr<v1::GraphExport> End();

  bool records(int virtual_device) const {
    return virtual_device_.load(std::memory_order_acquire) == virtual_device;
  }
  // Adds one run of a valid graph. Does nothing while no export runs.
  void Add(v1::Graph graph, v1::GraphNotes notes);

 private:
  static constexpr int kNone = -1;

  const uint64_t max_bytes_;
  std::atomic<int> virtual_device_ = kNone;
  Mutex mu_;
  v1::GraphExport found_ ABSL_GUARDED_BY(mu_);
  // Indices into found_, by fingerprint.
  absl::flat_hash_map<std::string, int> pieces_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RECORDING_GRAPH_RECORDER_H_
