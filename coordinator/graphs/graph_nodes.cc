#include "coordinator/graphs/graph_nodes.h"

#include "absl/strings/str_cat.h"

namespace djinn::coordinator {
namespace {

void Describe(const v1::TensorView& view, v1::GraphTensor* tensor) {
  tensor->set_slot(view.slot());
  tensor->set_data_type(view.data_type());
  *tensor->mutable_sizes() = view.sizes();
}

void Describe(const v1::Argument& argument, v1::GraphNode* node) {
  switch (argument.value_case()) {
    case v1::Argument::kTensor:
      Describe(argument.tensor(), node->add_operands());
      break;
    case v1::Argument::kTensors:
      for (const auto& entry : argument.tensors().entries()) {
        if (entry.has_view()) Describe(entry.view(), node->add_operands());
      }
      break;
    case v1::Argument::kGeneratorSlot:
      node->set_generator_slot(argument.generator_slot());
      break;
    default:
      break;  // a constant or a hole
  }
}

void Describe(const v1::Result& result, v1::GraphNode* node) {
  if (result.has_view()) {
    Describe(result.view(), node->add_results());
  } else if (result.has_unknown_in_slot()) {
    node->add_results()->set_slot(result.unknown_in_slot());
  }
}

}  // namespace

void DescribeNodes(const v1::Graph& graph, const v1::GraphNotes& notes,
                   google::protobuf::RepeatedPtrField<v1::GraphNode>* nodes) {
  for (int i = 0; i < graph.nodes_size(); ++i) {
    const v1::Node& call = graph.nodes(i);
    v1::GraphNode* const node = nodes->Add();
    const v1::Operator& op = graph.operators(call.operator_index());
    node->set_operator_name(op.overload().empty()
                                ? op.name()
                                : absl::StrCat(op.name(), ".", op.overload()));
    for (const v1::Argument& argument : call.arguments()) {
      Describe(argument, node);
    }
    for (const v1::Result& result : call.results()) Describe(result, node);
    *node->mutable_written_slots() = call.writes();
    if (call.has_implicit_generator_slot()) {
      node->set_generator_slot(call.implicit_generator_slot());
    }
    if (notes.note_of_node_size() == 0 || notes.note_of_node(i) == 0) continue;
    *node->mutable_note() =
        notes.notes(static_cast<int>(notes.note_of_node(i)) - 1);
  }
}

}  // namespace djinn::coordinator
