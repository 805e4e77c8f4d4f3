// A graph that is executed stage after stage, each of them elsewhere:
// all nodes of the first one, then all of the second, and so on.
#ifndef COMMON_SRG_STAGE_CUT_H_
#define COMMON_SRG_STAGE_CUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"

namespace djinn::srg {

// Whether it comes to the same as the nodes in their order: none needs what a
// later stage makes, and none writes what a later stage's node before it looks
// at. `stage_of_node` has one per node. FailedPrecondition (NOT_IN_STAGES)
// names the node.
absl::Status CheckStageOrder(const Graph& graph,
                             absl::Span<const uint32_t> stage_of_node);

// A stage's nodes, in their order, as a graph of their own.
struct StageCut {
  Graph graph;
  // By its slots, those of the whole: ascending.
  std::vector<uint32_t> slots;
  // By its holes, those of the whole.
  std::vector<uint32_t> float_holes;
  std::vector<uint32_t> scalar_tensor_holes;
};

// What earlier stages made is bound in it. `graph` has no size hole, was
// accepted by Validate(), and by CheckStageOrder() with these stages.
StageCut CutStage(const Graph& graph, absl::Span<const uint32_t> stage_of_node,
                  uint32_t stage);

}  // namespace djinn::srg

#endif  // COMMON_SRG_STAGE_CUT_H_
