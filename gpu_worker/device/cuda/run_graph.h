// Whole runs of one program as graphs: when to record one, when it may be
// replayed, and what is to be copied.
//
// A run is recorded when the runs before it were plain and like it: the same
// numbers, sizes and results. Operands that lay at one address in all of them
// (weights, caches) are used in place, and a replay is right whenever what is
// bound lies there again, whoever's memory it was in between: the graph reads
// what is there then. The others' bytes are copied into memory of the graph's,
// and out of it if the run writes them. Results that outlive the run are copied
// out: their memory is the program's client's for as long as it likes, and
// handing the graph's over would keep it from being replayed meanwhile.
//
// Never recorded: runs that draw (a session's generator is not one that a graph
// could be told of), that wait for the device within (nonzero, item), that may
// copy a number of the host's to it, whose results are operands' memory, of
// operators that are not PyTorch's own. What
// cannot be recorded once is not tried again; why is counted.
//
// Thread-safe: where one run is in here, others go on without.
#ifndef GPU_WORKER_DEVICE_CUDA_RUN_GRAPH_H_
#define GPU_WORKER_DEVICE_CUDA_RUN_GRAPH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "common/srg/structure.h"
#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/cuda/graph_store.h"
#include "gpu_worker/device/cuda/transfers.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/torch_call.h"

namespace djinn::worker {

// Why the program's runs are never recorded; empty if they may be.
absl::string_view WhyNeverRecorded(const srg::Structure& structure,
                                   absl::Span<const TorchCall> calls);

class RunGraph {
 public:
  // Carries one node out on the slots in `input`; `flags` are for what its
  // check finds.
  using RunNode = std::function<absl::Status(
      uint32_t node, const NodeInput& input, const at::Tensor& flags,
      std::vector<NodeResult>* results)>;

  struct Environment {
    Accelerator* accelerator = nullptr;
    Transfers* transfers = nullptr;
    GraphStore* store = nullptr;
  };

  // What `environment` points to, and what `run_node` refers to, outlive this
  // and its graphs. Its structure passed compilation; `flag_count` is that of
  // checked nodes.
  RunGraph(Environment environment, srg::Structure structure, size_t flag_count,
           RunNode run_node);
  ~RunGraph();

  // Whether a run may be worth handing to Execute().
  bool possible() const { return !refused_.load(std::memory_order_relaxed); }

  // As DeviceRun::ExecuteWhole(). The graph when it was replayed, or was begun
  // to be: `status` then says whether it went well. Null otherwise, and
  // `status` is not OK if recording failed.
  std::shared_ptr<HeldGraph> Execute(
      const NodeInput& input, absl::Span<const KeptResult> kept,
      std::vector<std::shared_ptr<Buffer>>* results, absl::Status* status);

  // A run that Execute() was asked about, and that went node by node, is over.
  void Observe(bool plain);

 private:
  // What must be the same for two runs to be alike.
  struct Shape {
    std::vector<double> floats;
    std::vector<std::string> scalar_tensors;
    bool fast = false;
    std::vector<uint64_t> bytes;  // by slot; of those bound
    std::vector<KeptResult> kept;
  };

  static Shape ShapeOf(const NodeInput& input,
                       absl::Span<const KeptResult> kept);
  static bool Same(const Shape& a, const Shape& b);

  bool Fits(const HeldGraph& graph, const Shape& shape,
            const NodeInput& input) const;
  // Takes note of a run that is about to go node by node.
  void Look(Shape shape, const NodeInput& input)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts, and never tries again.
  void Refuse(absl::string_view why);
  std::shared_ptr<HeldGraph> Record(const Shape& shape, const NodeInput& input,
                                    const std::vector<bool>& moves,
                                    absl::Status* status);
  GraphBody MakeBody(const HeldGraph& graph) const;
  absl::Status Replay(const HeldGraph& graph, const NodeInput& input,
                      absl::Span<const std::shared_ptr<TorchBuffer>> results);

  const Environment environment_;
  const srg::Structure structure_;
  const size_t flag_count_;
  const RunNode run_node_;
  // Slots to let go after each node.
  std::vector<std::vector<uint32_t>> last_uses_;
  std::vector<bool> written_;

  std::atomic<bool> refused_{false};
  Mutex mu_;
  // A run is in Execute().
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  std::weak_ptr<HeldGraph> graph_ ABSL_GUARDED_BY(mu_);
  int misses_ ABSL_GUARDED_BY(mu_) = 0;
  // The last run looked at, and its operands' addresses, by slot.
  std::optional<Shape> last_ ABSL_GUARDED_BY(mu_);
  std::vector<const void*> addresses_ ABSL_GUARDED_BY(mu_);
  // Operands that were seen to lie elsewhere, by slot.
  std::vector<bool> moves_ ABSL_GUARDED_BY(mu_);
  // Plain runs alike, up to the last one.
  int alike_ ABSL_GUARDED_BY(mu_) = 0;
  bool looked_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_RUN_GRAPH_H_
