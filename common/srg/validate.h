// What can be known about a graph without PyTorch, checked once and then
// relied upon: slots exist and are born before use, views have sane extents,
// holes are in range, counts are capped. A graph with a size hole is
// checked as it is at size 0.
#ifndef COMMON_SRG_VALIDATE_H_
#define COMMON_SRG_VALIDATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/srg/graph.h"

namespace djinn::srg {

struct GraphCaps {
  size_t max_operators = 1024;
  size_t max_nodes = 4096;
  size_t max_slots = 65536;
  size_t max_arguments_per_node = 64;
  // Entries over all lists of a node, results included.
  size_t max_list_entries = 16384;
  size_t max_text_bytes = 4096;
};

// Slots and float holes of a session's graphs whose bindings and values a
// worker keeps, and runs of one graph, at most: see Run.remember in
// execution.proto.
inline constexpr size_t kMaxRememberedSlots = size_t{1} << 20;
inline constexpr size_t kMaxRememberedRuns = 8;

// Derived facts about one slot.
struct SlotFacts {
  // Largest extent of the operands that name the slot before it could grow;
  // a bound storage must have at least this size on every run.
  uint64_t required_bytes = 0;
  // Nodes (ascending positions) between first and last use, results included.
  uint32_t first_node = 0;
  uint32_t last_node = 0;
  // Writes a run counts in its Binding: birth, argument writes, draws.
  uint32_t writes = 0;
  // Whether earlier contents matter: the first use is not a whole overwrite.
  bool reads = false;
};

struct GraphFacts {
  std::vector<SlotFacts> slots;
  // Data types of the scalar tensor holes, by index.
  std::vector<DataType> scalar_tensor_types;
  // Number of unknown results; the run asks for metadata exactly when non-zero.
  uint32_t unknown_results = 0;
};

// InvalidArgument (MALFORMED_GRAPH, INVALID_VIEW) names node, operator and
// slot; ResourceExhausted (GRAPH_TOO_LARGE) names cap and count.
absl::StatusOr<GraphFacts> Validate(const Graph& graph, const GraphCaps& caps);

}  // namespace djinn::srg

#endif  // COMMON_SRG_VALIDATE_H_
