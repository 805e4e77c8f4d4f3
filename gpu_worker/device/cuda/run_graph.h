// Whole runs of one program as graphs: when to record one, when it may be
// replayed, and what is to be copied.
//
// A run is recorded when the runs before it were plain and like it: the same
// numbers, sizes and results. A program that is run on several sets of
// operands, such as two tenants' copies of one model, has a graph for each:
// runs count together where the operands that lie elsewhere are small. Operands
// that lay at one address in all of them (weights, caches) are used in place,
// and a replay is right whenever what is bound lies there again, whoever's
// memory it was in between: the graph reads what is there then. The others'
// bytes are copied into memory of the graph's, and out of it if the run writes
// them. Results that outlive the run are copied out: their memory is the
// program's client's for as long as it likes, and handing the graph's over
// would keep it from being replayed meanwhile.
//
// Never recorded: runs that draw (a session's generator is not one that a graph
// could be told of; attention without dropout draws nothing), that wait for the
// device within (nonzero, item), that may copy a number of the host's to it,
// whose results are operands' memory, of operators that are not PyTorch's own.
// What cannot be recorded once is not tried again, unless memory was lacking:
// then after a while. Why is counted.
//
// Thread-safe: where one run is in here, others go on without.
#ifndef GPU_WORKER_DEVICE_CUDA_RUN_GRAPH_H_
#define GPU_WORKER_DEVICE_CUDA_RUN_GRAPH_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/srg/graph.h"
#include "gpu_worker/device/cuda/accelerator.h"
#include "gpu_worker/device/cuda/graph_store.h"
#include "gpu_worker/device/cuda/transfers.h"
#include "gpu_worker/device/operator_library.h"
#include "gpu_worker/device/torch/torch_call.h"

namespace djinn::worker {

// Why the program's runs are never recorded; empty if they may be.
absl::string_view WhyNeverRecorded(const srg::Graph& srg_graph,
                                   absl::Span<const TorchCall> calls);
// Numbers that must be 0 for a run not to draw.
std::vector<uint32_t> HolesThatDraw(absl::Span<const TorchCall> calls);

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
  // and its graphs. Its srg graph passed compilation; `flag_count` is that of
  // checked nodes, `draws` is HolesThatDraw().
  RunGraph(Environment environment, srg::Graph srg_graph, size_t flag_count,
           std::vector<uint32_t> draws, RunNode run_node);
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

  using Addresses = std::vector<const void*>;  // by slot

  // One set of operands that the program is run on.
  struct Variant {
    uint64_t id = 0;
    std::weak_ptr<HeldGraph> graph;
    // Runs in succession that the graph did not fit.
    int misses = 0;
    // The last run looked at.
    Shape last;
    Addresses addresses;
    // Operands that were seen to lie elsewhere, by slot.
    std::vector<bool> moves;
    // Plain runs alike, up to the last one; below 0 while memory lacks.
    int alike = 0;
    int refusals = 0;
  };

  Shape ShapeOf(const NodeInput& input,
                absl::Span<const KeptResult> kept) const;
  static bool Same(const Shape& a, const Shape& b);
  bool IsOperand(const NodeInput& input, size_t slot) const;
  Addresses AddressesOf(const NodeInput& input) const;

  bool Fits(const HeldGraph& graph, const Shape& shape,
            const NodeInput& input) const;
  // Moves the one whose graph fits to the front. Null if none does.
  std::shared_ptr<HeldGraph> FindFitting(const Shape& shape,
                                         const NodeInput& input)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What would be copied if the run were the variant's too; nothing if too
  // much.
  std::optional<uint64_t> CopiedBytes(const Variant& variant,
                                      const Shape& shape,
                                      const Addresses& addresses) const;
  // The run's, in front: that from which it differs least, or a new one.
  Variant& VariantOf(const Shape& shape, const Addresses& addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes note of a run that is about to go node by node, unless recorded.
  void Look(Variant* variant, Shape shape, Addresses addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Recording failed: an error of memory is none for ever.
  void NoteRefusal(Variant* variant, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<HeldGraph>> Record(
      const Shape& shape, const NodeInput& input,
      const std::vector<bool>& moves);
  GraphBody MakeBody(const HeldGraph& graph) const;
  absl::Status Replay(const HeldGraph& graph, const NodeInput& input,
                      absl::Span<const std::shared_ptr<TorchBuffer>> results);

  const Environment environment_;
  const srg::Graph srg_graph_;
  const size_t flag_count_;
  const std::vector<uint32_t> draws_;
  const RunNode run_node_;
  // Slots to let go after each node.
  std::vector<std::vector<uint32_t>> last_uses_;
  std::vector<bool> written_;

  std::atomic<bool> refused_{false};
  Mutex mu_;
  // A run is in Execute().
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  // The one that ran last in front.
  std::list<Variant> variants_ ABSL_GUARDED_BY(mu_);
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  // Whose run goes node by node; 0: none.
  uint64_t looked_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_RUN_GRAPH_H_
