// Defines how the plan executor, which does not depend on PyTorch, checks and
// runs operators.
#ifndef GPU_WORKER_DEVICE_OPERATOR_LIBRARY_H_
#define GPU_WORKER_DEVICE_OPERATOR_LIBRARY_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "common/srg/switches.h"
#include "common/srg/validate.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// A tensor that a node returned; parallel to srg::Node::results.
struct NodeResult {
  // Null when the operator returned an undefined tensor.
  std::shared_ptr<Buffer> buffer;
  // The tensor's actual metadata; its slot field is not set.
  srg::TensorView view;
  // Set when the result shares the memory of this operand's slot.
  std::optional<uint32_t> aliased_slot;
};

// The ways in which a device may execute a node, for a profile.
enum class ExecutionPath : uint8_t {
  kPlain,
  // The node used a prepacked copy of its weight.
  kPacked,
};

class DeviceRun;

// The varying values of one run, as one node sees them.
struct NodeInput {
  // The current buffer of every slot; null for slots that are not created yet,
  // or freed. The executor has checked extents and made written buffers
  // unshared.
  absl::Span<const std::shared_ptr<Buffer>> slots;
  absl::Span<const double> floats;
  // Little-endian bytes of each scalar tensor; as many as its dtype's size.
  absl::Span<const std::string> scalar_tensors;
  // The run is in fast mode: sums may be taken in another order than usual.
  bool fast = false;
  // The tenant of the run.
  const std::string* tenant = nullptr;
  // If not null, Execute() sets it to the execution path, unless that is
  // kPlain.
  ExecutionPath* way = nullptr;
  // The device's state of the run, if its program has one. With null, Execute()
  // waits for the node.
  DeviceRun* run = nullptr;
  // Slots that no later node names, as (node, slot).
  absl::Span<const std::pair<uint32_t, uint32_t>> ends;
  // The (node, slot) pairs of the whole run, ascending.
  absl::Span<const std::pair<uint32_t, uint32_t>> run_ends;
  // Bytes that the node may take at once for its results and for what it needs
  // only during the call. A device may allow a little more, or not check.
  uint64_t most_bytes = std::numeric_limits<uint64_t>::max();
  // The switches of the run. A device without an effect of a switch ignores it.
  srg::Switches switches;
};

// A node that failed after its call had returned.
struct LateFailure {
  uint32_t node = 0;
  absl::Status status;
};

// A result that outlives its run, and its size.
struct KeptResult {
  uint32_t slot = 0;
  uint64_t bytes = 0;
};

// A run on a device that works on after calls have returned. For one thread.
// After End(), no function but Settle() may be called.
class DeviceRun {
 public:
  virtual ~DeviceRun() = default;

  // Returns whether ExecuteWhole() may succeed. Called before the first node.
  virtual bool MayBeWhole() const { return false; }
  // Executes the whole run at once, if the device has it ready with these
  // operands. Returns true and sets `results` to the buffers of `kept`.
  // Otherwise returns false and changes nothing; the caller then executes node
  // by node. In `input`, every slot that existed before the run has a buffer,
  // and those that the run writes are unshared.
  virtual bool ExecuteWhole(const NodeInput& /*input*/,
                            absl::Span<const KeptResult> /*kept*/,
                            std::vector<std::shared_ptr<Buffer>>* /*results*/) {
    return false;
  }

  // Waits for everything executed so far. Appends nodes that failed after their
  // calls had returned, ascending; their results and the operands they wrote
  // are worthless. After an error, the outcome of all nodes since the last
  // Settle() is unknown. May be called again after more nodes.
  virtual absl::Status Settle(std::vector<LateFailure>* failures) = 0;

  // Ends a settled run. `plain` says that every node was executed, that none
  // failed, and that every result had memory of its own, as the graph says.
  virtual void End(bool /*plain*/) {}
};

// A node that multiplies rows by a matrix: each row of its result depends only
// on one row of the operand, the matrix, and the node's bias, if it has one.
struct RowProduct {
  uint32_t node = 0;
  // The slot of the matrix.
  uint32_t weight_slot = 0;
  int64_t rows = 0;
  // Equal for products that name the same matrix in one buffer.
  uint64_t kind = 0;
};

// A graph resolved against the operator library. Immutable; threads may call
// Execute() concurrently for different runs.
class CompiledProgram {
 public:
  virtual ~CompiledProgram() = default;

  // Runs one node. Changes written operands in place and appends the results to
  // `results`, one per entry of srg::Node::results. A generator's buffer
  // advances only on success. On error, appends nothing and leaves the operands
  // that the node writes with unspecified contents.
  virtual absl::Status Execute(uint32_t node, const NodeInput& input,
                               std::vector<NodeResult>* results) const = 0;

  // Begins a run. Returns null if every node is done when its Execute()
  // returns.
  virtual std::unique_ptr<DeviceRun> BeginRun() const { return nullptr; }

  // Returns the nodes that gain by being joined with others of the same matrix,
  // ascending.
  virtual absl::Span<const RowProduct> products() const { return {}; }
};

// A run's call of a product that is to be joined with other runs' calls.
struct JoinedCall {
  const CompiledProgram* program = nullptr;
  uint32_t node = 0;
  // Inputs in fast mode, under PyTorch's default switches.
  const NodeInput* input = nullptr;
  // Receives results as in Execute().
  std::vector<NodeResult>* results = nullptr;
  bool done = false;
};

// Thread-safe.
class OperatorLibrary {
 public:
  virtual ~OperatorLibrary() = default;

  // Checks what needs the operators' schemas: each operator exists, is allowed
  // and has the same schema hash (FailedPrecondition OPERATOR_UNKNOWN,
  // PermissionDenied OPERATOR_REFUSED, FailedPrecondition SCHEMA_MISMATCH, each
  // naming it); argument count and types, number of results, `writes` and
  // `overwrites` match the schema (InvalidArgument MALFORMED_GRAPH). The graph
  // passed srg::Validate().
  virtual absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Graph& graph) = 0;

  // Executes products as one; all name the same matrix in the same buffer. Sets
  // `done` of those that were executed and appends their results. Leaves the
  // others unchanged.
  virtual void ExecuteJoined(absl::Span<JoinedCall> /*calls*/) {}

  // Returns the size of a generator's state.
  virtual absl::StatusOr<uint64_t> GeneratorBytes() = 0;

  // Returns the state of a generator after manual_seed(seed), in a buffer of
  // its own.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(
      uint64_t seed) = 0;

  // Returns OK for bytes that a generator's buffer may hold. Returns
  // InvalidArgument (INVALID_GENERATOR) for all others: a draw with such a
  // state could read outside it.
  virtual absl::Status CheckGenerator(absl::string_view state) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_OPERATOR_LIBRARY_H_
