#include "scheduler/semantics/patterns/frame.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace djinn::semantics {
namespace {

// The first and last position of an operator's arguments that are parameters of
// a module. Optimizers write theirs.
struct ParameterArguments {
  int first = 1;
  int last = 0;
};

ParameterArguments ParametersOf(absl::string_view op, OpClass op_class) {
  if (op == "linear") return {1, 2};
  if (op == "layer_norm" || op == "native_layer_norm") return {2, 3};
  if (op == "batch_norm" || op == "native_batch_norm" ||
      op == "cudnn_batch_norm" || op == "_native_batch_norm_legit") {
    return {1, 4};
  }
  if (op == "group_norm") return {2, 3};
  if (op == "native_group_norm") return {1, 2};
  if (op == "rms_norm" || op == "_fused_rms_norm") return {2, 2};
  if (op_class == OpClass::kEmbedding) return {0, 0};
  if (op_class == OpClass::kConvolution) return {1, 2};
  if (op_class == OpClass::kRecurrent) return {2, 8};
  return {};
}

// Returns whether a matrix product's right operand can be a weight: it is one
// matrix, and the left operand is not transposed, as it is in a weight's
// gradient.
bool MultipliesByMatrix(const Frame& frame, int node, int left) {
  const auto operands = frame.operands(node);
  const srg::TensorView& rows = *operands[left].view;
  return operands[left + 1].view->sizes.size() == 2 &&
         (rows.sizes.size() != 2 || rows.sizes[0] == 1 ||
          rows.strides[1] == 1 || !frame.IsTurned(node, left));
}

void SortUnique(std::vector<int>* nodes) {
  std::sort(nodes->begin(), nodes->end());
  nodes->erase(std::unique(nodes->begin(), nodes->end()), nodes->end());
}

}  // namespace

Frame::Frame(const srg::Graph& graph) : graph_(graph) {
  // The current value of each storage.
  std::vector<int> current(graph.slots.size(), -1);
  const auto value_of = [&](uint32_t slot, const srg::TensorView* view) {
    if (current[slot] < 0) {
      current[slot] = static_cast<int>(values_.size());
      values_.push_back({slot});
    }
    Value& value = values_[current[slot]];
    if (value.view == nullptr) value.view = view;
    return current[slot];
  };
  nodes_.resize(graph.nodes.size());
  for (int i = 0; i < node_count(); ++i) {
    const srg::Node& call = graph.nodes[i];
    Node& node = nodes_[i];
    const srg::Operator& op = graph.operators[call.operator_index];
    node.op = std::string(absl::StripPrefix(op.name, "aten::"));
    node.op_class = ClassOf(node.op);
    const auto make = [&](uint32_t slot, const srg::TensorView* view) {
      const int previous = current[slot];
      current[slot] = static_cast<int>(values_.size());
      values_.push_back({slot, i, previous, view, {}});
      node.outputs.push_back({view, current[slot]});
    };
    const auto take = [&](const srg::TensorView& view, int argument) {
      const bool written = absl::c_binary_search(call.writes, view.slot);
      node.operands.push_back(
          {&view, value_of(view.slot, &view), argument, written});
      if (absl::c_binary_search(call.overwrites, view.slot)) return;
      std::vector<int>& readers = values_[node.operands.back().value].readers;
      if (readers.empty() || readers.back() != i) readers.push_back(i);
    };
    for (size_t k = 0; k < call.arguments.size(); ++k) {
      const int argument = static_cast<int>(k);
      if (const auto* view = std::get_if<srg::TensorView>(&call.arguments[k])) {
        take(*view, argument);
      } else if (const auto* list =
                     std::get_if<std::vector<srg::TensorListEntry>>(
                         &call.arguments[k])) {
        for (const srg::TensorListEntry& entry : *list) {
          const auto* element = std::get_if<srg::TensorView>(&entry);
          if (element != nullptr) take(*element, argument);
        }
      }
    }
    for (const srg::Result& result : call.results) {
      if (const auto* view = std::get_if<srg::TensorView>(&result)) {
        make(view->slot, view);
      } else if (const auto* unknown =
                     std::get_if<srg::UnknownResult>(&result)) {
        make(unknown->slot, nullptr);
      }
    }
    absl::flat_hash_map<uint32_t, const srg::TensorView*> written;
    for (const Operand& operand : node.operands) {
      if (operand.written) written[operand.view->slot] = operand.view;
    }
    for (const uint32_t slot : call.writes) make(slot, written[slot]);
    // The schema was not checked. A call that lacks the operands or outputs
    // that every call of that name has loses its name, so that no rule looks at
    // it.
    const bool needs_operands =
        node.op_class != OpClass::kFactory && node.op_class != OpClass::kRandom;
    if (node.outputs.empty() || (needs_operands && node.operands.empty())) {
      node.op.clear();
      node.op_class = OpClass::kOther;
    }
  }
  FindParameters();
}

void Frame::FindParameters() {
  parameter_slots_.assign(graph_.slots.size(), false);
  const auto mark = [this](const Operand& operand) {
    const uint32_t slot = operand.view->slot;
    if (graph_.slots[slot].kind == srg::Slot::Kind::kBound &&
        IsFloating(operand.view->data_type)) {
      parameter_slots_[slot] = true;
    }
  };
  for (int i = 0; i < node_count(); ++i) {
    const Node& node = nodes_[i];
    const ParameterArguments known = ParametersOf(node.op, node.op_class);
    for (const Operand& operand : node.operands) {
      if ((operand.argument >= known.first && operand.argument <= known.last) ||
          (node.op_class == OpClass::kOptimizer && operand.written)) {
        mark(operand);
      }
    }
    const auto& operands = node.operands;
    if (node.op == "addmm" && operands.size() == 3 &&
        operands[0].view->sizes.size() == 1 &&
        MultipliesByMatrix(*this, i, 1)) {
      mark(operands[0]);
      mark(operands[2]);
    }
    if ((node.op == "mm" || node.op == "matmul") && operands.size() == 2 &&
        MultipliesByMatrix(*this, i, 0)) {
      mark(operands[1]);
    }
  }
}

const srg::Argument* Frame::argument(int node, int index) const {
  const auto& arguments = graph_.nodes[node].arguments;
  return index < static_cast<int>(arguments.size()) ? &arguments[index]
                                                    : nullptr;
}

int Frame::Producer(int node, int k) const {
  const auto& operands = nodes_[node].operands;
  if (k < 0 || k >= static_cast<int>(operands.size())) return -1;
  return values_[operands[k].value].producer;
}

std::vector<int> Frame::Producers(int node) const {
  std::vector<int> producers;
  for (const Operand& operand : nodes_[node].operands) {
    const int producer = values_[operand.value].producer;
    if (producer >= 0) producers.push_back(producer);
  }
  SortUnique(&producers);
  return producers;
}

std::vector<int> Frame::Consumers(int node) const {
  std::vector<int> consumers;
  for (const Output& output : nodes_[node].outputs) {
    const auto& readers = values_[output.value].readers;
    consumers.insert(consumers.end(), readers.begin(), readers.end());
  }
  SortUnique(&consumers);
  return consumers;
}

absl::Span<const int64_t> Frame::Sizes(int node, int k) const {
  const auto& operands = nodes_[node].operands;
  if (k >= static_cast<int>(operands.size())) return {};
  return operands[k].view->sizes;
}

absl::Span<const int64_t> Frame::OutputSizes(int node) const {
  const auto& outputs = nodes_[node].outputs;
  if (outputs.empty() || outputs[0].view == nullptr) return {};
  return outputs[0].view->sizes;
}

bool Frame::IsBound(int node, int k) const {
  const auto& operands = nodes_[node].operands;
  if (k >= static_cast<int>(operands.size())) return false;
  const Value& value = values_[operands[k].value];
  return value.producer < 0 &&
         graph_.slots[value.slot].kind == srg::Slot::Kind::kBound;
}

bool Frame::IsTurned(int node, int k) const {
  const Operand& operand = nodes_[node].operands[k];
  if (!IsTransposed(*operand.view)) return false;
  const Value& value = values_[operand.value];
  if (value.producer < 0 || value.view == nullptr) return true;
  const srg::TensorView& made = *value.view;
  return made.sizes.empty() || made.sizes.back() == 1 ||
         made.strides.back() == 1;
}

bool IsTransposed(const srg::TensorView& view) {
  return view.sizes.size() == 2 && view.sizes[0] > 1 && view.sizes[1] > 1 &&
         view.strides[0] == 1 && view.strides[1] >= view.sizes[0];
}

int64_t Elements(const srg::TensorView* view) {
  if (view == nullptr) return 0;
  const absl::StatusOr<int64_t> count = srg::ElementCount(*view);
  return count.ok() ? *count : 0;
}

int64_t Bytes(const srg::TensorView* view) {
  if (view == nullptr) return 0;
  return Elements(view) * srg::ElementSize(view->data_type);
}

bool IsFloating(srg::DataType type) {
  switch (type) {
    case srg::DataType::kFloat16:
    case srg::DataType::kFloat32:
    case srg::DataType::kFloat64:
    case srg::DataType::kBfloat16:
    case srg::DataType::kFloat8E5m2:
    case srg::DataType::kFloat8E4m3fn:
    case srg::DataType::kFloat8E5m2fnuz:
    case srg::DataType::kFloat8E4m3fnuz:
    case srg::DataType::kFloat8E8m0fnu:
    case srg::DataType::kFloat4E2m1fnX2:
    case srg::DataType::kComplex32:
    case srg::DataType::kComplex64:
    case srg::DataType::kComplex128:
      return true;
    default:
      return false;
  }
}

}  // namespace djinn::semantics
