// Computes a graph with a size hole at the size of a run.
//
// The hole is one number n, and an integer of the graph is a + b·n. Loops whose
// tensors grow by a step each time are of this kind: sizes, strides, offsets
// and the ends of slices are all linear in the number of steps. Graphs whose
// integers vary otherwise are different graphs.
#ifndef COMMON_SRG_SIZE_HOLE_H_
#define COMMON_SRG_SIZE_HOLE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "common/srg/graph.h"

namespace djinn::srg {

// Calls `visit(int64_t& or uint64_t&)` for each integer that may vary, in the
// order in which SizeHole in srg.proto counts them.
template <typename GraphType, typename Visitor>
void ForEachInteger(GraphType&& graph, Visitor&& visit) {
  const auto visit_view = [&](auto& view) {
    visit(view.storage_offset);
    for (auto& size : view.sizes) visit(size);
    for (auto& stride : view.strides) visit(stride);
  };
  for (auto& node : graph.nodes) {
    for (auto& argument : node.arguments) {
      if (auto* view = std::get_if<TensorView>(&argument)) {
        visit_view(*view);
      } else if (auto* list =
                     std::get_if<std::vector<TensorListEntry>>(&argument)) {
        for (auto& entry : *list) {
          if (auto* view = std::get_if<TensorView>(&entry)) visit_view(*view);
        }
      } else if (auto* integer = std::get_if<int64_t>(&argument)) {
        visit(*integer);
      } else if (auto* values = std::get_if<std::vector<int64_t>>(&argument)) {
        for (auto& value : *values) visit(value);
      } else if (auto* values = std::get_if<std::vector<Scalar>>(&argument)) {
        for (auto& value : *values) {
          if (auto* integer = std::get_if<int64_t>(&value)) visit(*integer);
        }
      }
    }
    for (auto& result : node.results) {
      if (auto* view = std::get_if<TensorView>(&result)) visit_view(*view);
    }
  }
  for (auto& slot : graph.slots) {
    if (slot.kind == Slot::Kind::kCreated) visit(slot.created_bytes);
  }
}

// Returns the graph without the hole, as a run of this size has it. Validates
// nothing: the result may be invalid although `graph` is valid. Returns
// InvalidArgument (MALFORMED_GRAPH) for an integer that leaves the range of its
// type.
absl::StatusOr<Graph> AtSize(Graph graph, int64_t size);

// Checks that the hole names integers of the graph, each once. Returns
// InvalidArgument (MALFORMED_GRAPH) otherwise.
absl::Status CheckSizeHole(const Graph& graph);

}  // namespace djinn::srg

#endif  // COMMON_SRG_SIZE_HOLE_H_
