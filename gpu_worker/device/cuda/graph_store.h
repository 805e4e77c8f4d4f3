// Keeps the recorded runs of a device's programs within a budget of graphs and
// of bytes, and evicts the graph that was replayed least recently. The graphs'
// memory is spare memory, charged to the tenant whose run was recorded.
//
// Thread-safe.
#ifndef GPU_WORKER_DEVICE_CUDA_GRAPH_STORE_H_
#define GPU_WORKER_DEVICE_CUDA_GRAPH_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Storage.h"
#include "common/base/mutex.h"
#include "gpu_worker/device/cuda/graph_recorder.h"
#include "gpu_worker/device/device.h"
#include "gpu_worker/device/operator_library.h"

namespace djinn::worker {

// A recorded run, and the conditions under which it may be replayed.
struct HeldGraph {
  struct Operand {
    uint32_t slot = 0;
    const void* address = nullptr;
    uint64_t bytes = 0;
    // The memory to which the operand's bytes are copied before a replay. Null:
    // the graph uses them in place, and the address is a condition.
    c10::Storage copy;
    bool written = false;
  };

  std::vector<Operand> operands;
  std::vector<double> floats;
  std::vector<std::string> scalar_tensors;
  bool fast = false;
  srg::Switches switches;
  std::vector<KeptResult> kept;
  // Holds one boolean for each checked node.
  at::Tensor flags;
  // The reservation of the graph's memory. Destroyed after `recording`, which
  // owns that memory.
  std::shared_ptr<void> paid;
  Recording recording;
};

class GraphStore {
 public:
  struct Options {
    // With 0, no runs are recorded.
    size_t max_graphs = 64;
    uint64_t max_bytes = uint64_t{1} << 30;
    // Limit on the operands that one replay copies.
    uint64_t max_copied_bytes = uint64_t{8} << 20;
  };

  explicit GraphStore(Options options) : options_(options) {}

  const Options& options() const { return options_; }

  // Keeps the graph, and may evict others for it. Returns null if there is no
  // room for it.
  std::shared_ptr<HeldGraph> Add(std::shared_ptr<HeldGraph> graph,
                                 const std::string& tenant, uint64_t bytes);
  // Notes that the graph was replayed.
  void Touch(const HeldGraph* graph);
  void Drop(const HeldGraph* graph);
  // Evicts graphs until `bytes` or a little more are free. Returns the number
  // of bytes released.
  uint64_t Release(uint64_t bytes);

  // Sets the source of spare memory, as Device::SetSpareMemory().
  void SetSpareMemory(SpareMemory* spare) { spare_.store(spare); }

  // Counts an event under its name.
  void Count(absl::string_view event);
  std::vector<std::pair<std::string, uint64_t>> counts() const;
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<HeldGraph> graph;
    uint64_t bytes = 0;
  };

  // Removes the least recently replayed graph; the caller destroys it without
  // the lock.
  Entry TakeOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  std::atomic<SpareMemory*> spare_{nullptr};
  mutable Mutex mu_;
  // The most recently replayed first.
  std::list<Entry> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, uint64_t> counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_GRAPH_STORE_H_
