// Records whole runs of one program as device graphs: decides when to record a
// run, when a graph may be replayed, and what to copy.
//
// A run is recorded when the runs before it were plain and like it: the same
// numbers, sizes and results. A program that runs on several sets of operands,
// such as two tenants' copies of one model, has a graph for each; runs count as
// the same set if the operands at other addresses are small.
//
// Some operands (weights, caches) lay at one address in all these runs, and the
// graph uses them in place. A replay is right whenever the bound storages lie
// at those addresses, whatever the memory held in between, because the graph
// reads the present bytes. The bytes of other operands are copied into the
// graph's memory, and back out if the run writes them. Results that outlive the
// run are copied out, because the client may keep them for any time; until
// then, a graph whose memory they were could not be replayed.
//
// A run is never recorded if it draws random numbers (a graph cannot use a
// session's generator; attention without dropout draws nothing), waits for the
// device within (nonzero, item), may copy a number from the host to the device,
// returns operands' memory as results, or calls operators that are not
// PyTorch's own. A program that failed to record once is not recorded again,
// unless memory was lacking: then it is tried again after a while. The reasons
// are counted.
//
// Thread-safe. While one run is in Execute(), others proceed without it.
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

// Returns why the program's runs are never recorded; empty if they may be.
absl::string_view WhyNeverRecorded(const srg::Graph& srg_graph,
                                   absl::Span<const TorchCall> calls);
// Returns the floating-point holes that must be 0 for a run not to draw random
// numbers.
std::vector<uint32_t> HolesThatDraw(absl::Span<const TorchCall> calls);

class RunGraph {
 public:
  // Executes one node on the slots in `input`. Its check sets `flags`.
  using RunNode = std::function<absl::Status(
      uint32_t node, const NodeInput& input, const at::Tensor& flags,
      std::vector<NodeResult>* results)>;

  struct Environment {
    Accelerator* accelerator = nullptr;
    Transfers* transfers = nullptr;
    GraphStore* store = nullptr;
  };

  // `srg_graph` passed compilation; `flag_count` is the number of checked
  // nodes, `draws` is the result of HolesThatDraw(). All that `environment`
  // points to and `run_node` refers to outlives this and its graphs.
  RunGraph(Environment environment, srg::Graph srg_graph, size_t flag_count,
           std::vector<uint32_t> draws, RunNode run_node);
  ~RunGraph();

  // Returns whether Execute() may succeed for a run.
  bool possible() const { return !refused_.load(std::memory_order_relaxed); }

  // Replays the run as DeviceRun::ExecuteWhole(). Returns the graph if its
  // replay began; `status` then says whether it succeeded. Returns null
  // otherwise, with an error in `status` if recording failed.
  std::shared_ptr<HeldGraph> Execute(
      const NodeInput& input, absl::Span<const KeptResult> kept,
      std::vector<std::shared_ptr<Buffer>>* results, absl::Status* status);

  // Notes the end of a run for which Execute() returned null and which was
  // executed node by node.
  void Observe(bool plain);

 private:
  // The properties that must be equal for two runs to be alike.
  struct Shape {
    std::vector<double> floats;
    std::vector<std::string> scalar_tensors;
    bool fast = false;
    srg::Switches switches;
    std::vector<uint64_t> bytes;  // by slot; 0 for slots that are no operands
    std::vector<KeptResult> kept;
  };

  using Addresses = std::vector<const void*>;  // by slot

  // A set of operands that the program runs on.
  struct Variant {
    uint64_t id = 0;
    std::weak_ptr<HeldGraph> graph;
    // Successive runs that the graph did not fit.
    int misses = 0;
    // The last run that NoteRun() noted.
    Shape last;
    Addresses addresses;
    // Marks the slots whose address has changed between runs.
    std::vector<bool> moves;
    // The number of successive plain runs that are alike; negative while the
    // variant waits because memory was lacking.
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
  // Returns a graph that fits, and moves its variant to the front. Returns null
  // if none fits.
  std::shared_ptr<HeldGraph> FindFitting(const Shape& shape,
                                         const NodeInput& input)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the bytes that would be copied if the run belonged to the variant;
  // nothing if that is too much.
  std::optional<uint64_t> CopiedBytes(const Variant& variant,
                                      const Shape& shape,
                                      const Addresses& addresses) const;
  // Returns the run's variant and moves it to the front: the variant from which
  // it differs least, or a new one.
  Variant& VariantOf(const Shape& shape, const Addresses& addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes a run that is about to be executed node by node, unless it is
  // recorded.
  void NoteRun(Variant* variant, Shape shape, Addresses addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that recording failed. Lack of memory is not final.
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
  // Slots to release after each node.
  std::vector<std::vector<uint32_t>> last_uses_;
  std::vector<bool> written_;

  std::atomic<bool> refused_{false};
  Mutex mu_;
  // True while a run is in Execute().
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  // The most recently run first.
  std::list<Variant> variants_ ABSL_GUARDED_BY(mu_);
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  // The id of the variant whose run is executed node by node; 0 if there is
  // none.
  uint64_t noted_variant_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CUDA_RUN_GRAPH_H_
