// How the plan executor, which knows no PyTorch, has operators checked and run.
#ifndef GPU_WORKER_DEVICE_OPERATOR_LIBRARY_H_
#define GPU_WORKER_DEVICE_OPERATOR_LIBRARY_H_

#include <cstdint>
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
#include "common/srg/validate.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// One tensor that a node returned; parallel to srg::Node::results.
struct NodeResult {
  // Null when the operator returned an undefined tensor.
  std::shared_ptr<Buffer> buffer;
  // The real metadata; its slot field is not set.
  srg::TensorView view;
  // Set when the result shares the memory of this operand's slot.
  std::optional<uint32_t> aliased_slot;
};

// How a node was executed, for a profile.
enum class ExecutionPath : uint8_t {
  kPlain,
  // With a prepacked copy of its weight.
  kPacked,
};

class DeviceRun;

// The varying values of one run, as a node sees them.
struct NodeInput {
  // Current buffer of every slot; null for slots not born yet or freed. The
  // executor has checked extents and made written buffers unshared.
  absl::Span<const std::shared_ptr<Buffer>> slots;
  absl::Span<const double> floats;
  // Little-endian bytes of each scalar tensor, of its dtype's size.
  absl::Span<const std::string> scalar_tensors;
  // Sums may be taken in another order than usual.
  bool fast = false;
  // The tenant of the run.
  const std::string* tenant = nullptr;
  // Where not null: set to how the node was executed, unless plainly.
  ExecutionPath* way = nullptr;
  // The device's part of the run, where its program has one; with null
  // Execute() waits for the node.
  DeviceRun* run = nullptr;
  // Slots that no node after this one names: (node, slot).
  absl::Span<const std::pair<uint32_t, uint32_t>> ends;
  // The same of all of the run, ascending.
  absl::Span<const std::pair<uint32_t, uint32_t>> run_ends;
};

// A node that failed when its call had returned.
struct LateFailure {
  uint32_t node = 0;
  absl::Status status;
};

// A result that stays when its run is over, and its size.
struct KeptResult {
  uint32_t slot = 0;
  uint64_t bytes = 0;
};

// One run on a device that goes on working when calls have returned. One
// thread's; nothing of it is asked for after the end but Settle().
class DeviceRun {
 public:
  virtual ~DeviceRun() = default;

  // Whether ExecuteWhole() may be of any use, before the first node.
  virtual bool MayBeWhole() const { return false; }
  // Carries the whole run out at once, if the device has it ready as it is
  // bound: true, and `results` are the buffers of `kept`. False, and nothing
  // happened, else: its nodes are to be executed. In `input` no slot is null
  // that existed before the run, and those of them that it writes are unshared.
  virtual bool ExecuteWhole(const NodeInput& /*input*/,
                            absl::Span<const KeptResult> /*kept*/,
                            std::vector<std::shared_ptr<Buffer>>* /*results*/) {
    return false;
  }

  // Waits for everything executed so far. Appends nodes that failed after their
  // calls had returned, ascending; what they returned and wrote is worthless.
  // After an error it is unknown what was done since the last Settle(). May be
  // called again after more nodes.
  virtual absl::Status Settle(std::vector<LateFailure>* failures) = 0;

  // Ends a settled run. `plain` says that every node was executed, that none
  // failed, and that every result was its own memory, as the graph says.
  virtual void End(bool /*plain*/) {}
};

// A node that multiplies rows by a matrix: each row of its result follows from
// one of its rows, the matrix, and the node's bias, if it has one.
struct RowProduct {
  uint32_t node = 0;
  // The matrix's.
  uint32_t weight_slot = 0;
  int64_t rows = 0;
  // Equal for products that name the same matrix in one buffer.
  uint64_t kind = 0;
};

// A graph resolved against the operator library. Immutable; Execute() may
// run in several threads for different runs.
class CompiledProgram {
 public:
  virtual ~CompiledProgram() = default;

  // Runs one node. Written operands change in place; results are appended to
  // `results`, one per entry of srg::Node::results. A generator's buffer
  // advances only on success. On error nothing is appended, and operands the
  // node writes have unspecified contents.
  virtual absl::Status Execute(uint32_t node, const NodeInput& input,
                               std::vector<NodeResult>* results) const = 0;

  // Begins a run; null where every node is done when Execute() returns.
  virtual std::unique_ptr<DeviceRun> BeginRun() const { return nullptr; }

  // Nodes that gain by being executed together with others of the same matrix,
  // ascending.
  virtual absl::Span<const RowProduct> products() const { return {}; }
};

// A product of one of several runs.
struct JoinedCall {
  const CompiledProgram* program = nullptr;
  uint32_t node = 0;
  // In fast mode.
  const NodeInput* input = nullptr;
  // As of Execute().
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
  // `overwrites` as the schema gives them (InvalidArgument
  // MALFORMED_GRAPH). The graph passed srg::Validate().
  virtual absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Graph& graph) = 0;

  // Executes products as one: all name the same matrix in the same buffer. Sets
  // `done` of those that were executed and appends their results; nothing
  // happened to the others.
  virtual void ExecuteJoined(absl::Span<JoinedCall> /*calls*/) {}

  // The size of a generator's state.
  virtual absl::StatusOr<uint64_t> GeneratorBytes() = 0;

  // The state of a generator after manual_seed(seed), in a buffer of its own.
  virtual absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(
      uint64_t seed) = 0;

  // OK for bytes that a generator's buffer may hold; InvalidArgument
  // (INVALID_GENERATOR) for all others, with which a draw could read beside
  // them.
  virtual absl::Status CheckGenerator(absl::string_view state) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_OPERATOR_LIBRARY_H_
