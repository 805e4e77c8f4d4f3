// Checks everything that can be known about a graph without PyTorch, once, so
// that other code can rely on it: slots exist and are created before use, views
// have valid extents, holes are in range, counts are capped. A graph with a
// size hole is checked at size 0.
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
  // Room for the largest call and the calls before it in a segment.
  size_t max_slots = 131072;
  size_t max_arguments_per_node = 64;
  // Entries of all lists of a node together, results included.
  size_t max_list_entries = 65536;
  size_t max_text_bytes = 4096;
};

// Limits of Run.remember (execution.proto): the slots and float holes that a
// worker remembers over all graphs of a session, and the remembered runs of one
// graph.
inline constexpr size_t kMaxRememberedSlots = size_t{1} << 20;
inline constexpr size_t kMaxRememberedRuns = 8;

// Derived facts about one slot.
struct SlotFacts {
  // Largest extent of the operands that name the slot before it could grow;
  // a bound storage must have at least this size on every run.
  uint64_t required_bytes = 0;
  // Positions of the first and the last node that use the slot, results
  // included.
  uint32_t first_node = 0;
  uint32_t last_node = 0;
  // Writes that a run counts in its Binding: creation, argument writes, draws.
  uint32_t writes = 0;
  // Whether earlier contents matter, because the first use does not overwrite
  // all of them.
  bool reads = false;
};

struct GraphFacts {
  std::vector<SlotFacts> slots;
  // Data types of the scalar tensor holes, by index.
  std::vector<DataType> scalar_tensor_types;
  // Number of unknown results. The run asks for metadata exactly when it is not
  // 0.
  uint32_t unknown_results = 0;
};

// Checks the graph. InvalidArgument (MALFORMED_GRAPH, INVALID_VIEW) names node,
// operator and slot; ResourceExhausted (GRAPH_TOO_LARGE) names the cap and the
// count.
absl::StatusOr<GraphFacts> Validate(const Graph& graph, const GraphCaps& caps);

}  // namespace djinn::srg

#endif  // COMMON_SRG_VALIDATE_H_
