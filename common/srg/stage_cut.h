// Cuts a graph into stages that run on different workers: all nodes of the
// first stage, then all of the second, and so on.
#ifndef COMMON_SRG_STAGE_CUT_H_
#define COMMON_SRG_STAGE_CUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"

namespace djinn::srg {

// Checks that running the stages in order has the same result as running the
// nodes in order: no node needs a value that a later stage computes, and no
// node writes what an earlier node of a later stage reads. `stage_of_node` has
// one entry per node. FailedPrecondition (NOT_IN_STAGES) names the node.
absl::Status CheckStageOrder(const Graph& graph,
                             absl::Span<const uint32_t> stage_of_node);

// The nodes of one stage, in order, as a graph of their own.
struct StageCut {
  Graph graph;
  // For each slot of this graph, the slot of the whole graph. Ascending.
  std::vector<uint32_t> slots;
  // For each hole of this graph, the hole of the whole graph.
  std::vector<uint32_t> float_holes;
  std::vector<uint32_t> scalar_tensor_holes;
};

// Returns one stage as a graph of its own, in which the values that earlier
// stages computed are bound. `graph` has no size hole and was accepted by
// Validate(), and by CheckStageOrder() with these stages.
StageCut CutStage(const Graph& graph, absl::Span<const uint32_t> stage_of_node,
                  uint32_t stage);

}  // namespace djinn::srg

#endif  // COMMON_SRG_STAGE_CUT_H_
