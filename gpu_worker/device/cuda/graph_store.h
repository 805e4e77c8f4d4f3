// Recorded runs of a device's programs, within a budget of graphs and of bytes:
// what was not replayed for the longest time goes first. Their memory is spare
// memory, at the expense of the tenant whose run was recorded.
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

// A recorded run, and what must be as it was for it to be replayed.
struct HeldGraph {
  struct Operand {
    uint32_t slot = 0;
    const void* address = nullptr;
    uint64_t bytes = 0;
    // Where its bytes are copied to before a replay; null: they are used where
    // they are, and the address is a condition.
    c10::Storage copy;
    bool written = false;
  };

  std::vector<Operand> operands;
  std::vector<double> floats;
  std::vector<std::string> scalar_tensors;
  bool fast = false;
  std::vector<KeptResult> kept;
  // One boolean for each checked node.
  at::Tensor flags;
  // Its memory goes last.
  std::shared_ptr<void> paid;
  Recording recording;
};

class GraphStore {
 public:
  struct Options {
    // 0: nothing is recorded.
    size_t max_graphs = 64;
    uint64_t max_bytes = uint64_t{1} << 30;
    // Equal runs of a program before one is recorded.
    int runs_before = 3;
    // Runs in succession that a graph did not fit, until it is given up.
    int max_misses = 3;
    // Of operands that one replay copies, and sets of operands of one program.
    uint64_t max_copied_bytes = uint64_t{8} << 20;
    size_t max_copied_operands = 64;
    size_t max_variants = 8;
  };

  explicit GraphStore(Options options) : options_(options) {}

  const Options& options() const { return options_; }

  // Keeps the graph; others may yield. Null when there is no room for it.
  std::shared_ptr<HeldGraph> Add(std::shared_ptr<HeldGraph> graph,
                                 const std::string& tenant, uint64_t bytes);
  // It was replayed.
  void Touch(const HeldGraph* graph);
  void Drop(const HeldGraph* graph);
  // Gives back up to `bytes` or a little more. Returns how many came free.
  uint64_t Release(uint64_t bytes);

  // As Device::SetSpareMemory().
  void SetSpareMemory(SpareMemory* spare) { spare_.store(spare); }

  // Counts an event.
  void Count(absl::string_view event);
  std::vector<std::pair<std::string, uint64_t>> counts() const;
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<HeldGraph> graph;
    uint64_t bytes = 0;
  };

  // Takes the oldest out; the caller drops it without the lock.
  Entry TakeOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  std::atomic<SpareMemory*> spare_{nullptr};
  mutable Mutex mu_;
  // The one replayed last in front.
  std::list<Entry> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, uint64_t> counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_GRAPH_STORE_H_
