#include "common/srg/validate.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/srg/size_hole.h"

namespace djinn::srg {
namespace {

constexpr uint64_t kNoBound = std::numeric_limits<uint64_t>::max();

absl::Status CheckCap(absl::string_view what, size_t count, size_t cap) {
  if (count <= cap) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, "GRAPH_TOO_LARGE",
                   absl::StrCat(what, ": ", count, ", at most ", cap));
}

// Walks the nodes once, in order, and fills the facts.
class Validator {
 public:
  Validator(const Graph& graph, const GraphCaps& caps)
      : graph_(graph),
        caps_(caps),
        used_(graph.slots.size(), false),
        result_bytes_(graph.slots.size(), kNoBound) {
    facts_.slots.resize(graph.slots.size());
  }

  absl::StatusOr<GraphFacts> Run() && {
    DJINN_RETURN_IF_ERROR(CheckTables());
    for (node_ = 0; node_ < graph_.nodes.size(); ++node_) {
      DJINN_RETURN_IF_ERROR(VisitNode(graph_.nodes[node_]));
    }
    for (size_t slot = 0; slot < used_.size(); ++slot) {
      if (!used_[slot])
        return Malformed(absl::StrCat("slot ", slot, " is unused"));
    }
    if (floats_ != graph_.float_hole_count ||
        facts_.scalar_tensor_types.size() != graph_.scalar_tensor_hole_count) {
      return Malformed("hole counts differ from the holes in use");
    }
    DJINN_RETURN_IF_ERROR(CheckSizeHole(graph_));
    return std::move(facts_);
  }

 private:
  absl::Status Malformed(absl::string_view what) const {
    std::string where = "graph";
    if (node_ < graph_.nodes.size()) {
      where = absl::StrCat("node ", node_);
      const uint32_t op = graph_.nodes[node_].operator_index;
      if (op < graph_.operators.size()) {
        absl::StrAppend(&where, " (", graph_.operators[op].FullName(), ")");
      }
    }
    return MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRAPH",
                     absl::StrCat(where, ": ", what));
  }

  absl::Status CheckTables() {
    node_ = graph_.nodes.size();
    DJINN_RETURN_IF_ERROR(
        CheckCap("operators", graph_.operators.size(), caps_.max_operators));
    DJINN_RETURN_IF_ERROR(
        CheckCap("nodes", graph_.nodes.size(), caps_.max_nodes));
    DJINN_RETURN_IF_ERROR(
        CheckCap("slots", graph_.slots.size(), caps_.max_slots));
    if (graph_.nodes.empty()) return Malformed("no nodes");
    for (const Operator& op : graph_.operators) {
      DJINN_RETURN_IF_ERROR(CheckCap("bytes of an operator name",
                                     op.name.size() + op.overload.size(),
                                     caps_.max_text_bytes));
    }
    for (size_t i = 0; i < graph_.slots.size(); ++i) {
      const Slot& slot = graph_.slots[i];
      if (slot.created_bytes != 0 && slot.kind != Slot::Kind::kCreated) {
        return Malformed(
            absl::StrCat("slot ", i, " has a size but is not created"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status VisitNode(const Node& node) {
    if (node.operator_index >= graph_.operators.size()) {
      return Malformed("operator index out of range");
    }
    DJINN_RETURN_IF_ERROR(CheckCap("arguments of a node", node.arguments.size(),
                                   caps_.max_arguments_per_node));
    list_entries_ = node.results.size();
    DJINN_RETURN_IF_ERROR(CheckWrites(node));
    for (const Argument& argument : node.arguments) {
      DJINN_RETURN_IF_ERROR(VisitArgument(node, argument));
    }
    if (node.implicit_generator_slot.has_value()) {
      DJINN_RETURN_IF_ERROR(VisitGenerator(*node.implicit_generator_slot));
    }
    DJINN_RETURN_IF_ERROR(CheckCap("list entries of a node", list_entries_,
                                   caps_.max_list_entries));
    // Written slots are counted after all operands were visited, which detects
    // a written slot that is not an operand.
    for (const uint32_t slot : node.writes) {
      if (!used_[slot] || facts_.slots[slot].last_node != node_) {
        return Malformed(
            absl::StrCat("writes slot ", slot, " without an operand on it"));
      }
      ++facts_.slots[slot].writes;
    }
    for (const Result& result : node.results) {
      DJINN_RETURN_IF_ERROR(VisitResult(result));
    }
    return absl::OkStatus();
  }

  absl::Status CheckWrites(const Node& node) {
    for (size_t i = 0; i < node.writes.size(); ++i) {
      if (node.writes[i] >= graph_.slots.size()) {
        return Malformed("written slot out of range");
      }
      if (i > 0 && node.writes[i] <= node.writes[i - 1]) {
        return Malformed("written slots are not ascending");
      }
    }
    for (size_t i = 0; i < node.overwrites.size(); ++i) {
      if (i > 0 && node.overwrites[i] <= node.overwrites[i - 1]) {
        return Malformed("overwritten slots are not ascending");
      }
      if (!std::binary_search(node.writes.begin(), node.writes.end(),
                              node.overwrites[i])) {
        return Malformed("overwritten slot is not written");
      }
    }
    return absl::OkStatus();
  }

  absl::Status VisitArgument(const Node& node, const Argument& argument) {
    if (const auto* view = std::get_if<TensorView>(&argument)) {
      return VisitOperand(node, *view);
    }
    if (const auto* list =
            std::get_if<std::vector<TensorListEntry>>(&argument)) {
      list_entries_ += list->size();
      for (const TensorListEntry& entry : *list) {
        if (const auto* view = std::get_if<TensorView>(&entry)) {
          DJINN_RETURN_IF_ERROR(VisitOperand(node, *view));
        } else if (const auto* scalar = std::get_if<ScalarTensor>(&entry)) {
          DJINN_RETURN_IF_ERROR(VisitScalarTensor(*scalar));
        }
      }
      return absl::OkStatus();
    }
    if (const auto* hole = std::get_if<FloatHole>(&argument)) {
      if (hole->index != floats_) return Malformed("float holes out of order");
      ++floats_;
      return absl::OkStatus();
    }
    if (const auto* scalar = std::get_if<ScalarTensor>(&argument)) {
      return VisitScalarTensor(*scalar);
    }
    if (const auto* generator = std::get_if<GeneratorSlot>(&argument)) {
      return VisitGenerator(generator->slot);
    }
    if (const auto* text = std::get_if<std::string>(&argument)) {
      return CheckCap("bytes of a text argument", text->size(),
                      caps_.max_text_bytes);
    }
    if (const auto* values = std::get_if<std::vector<int64_t>>(&argument)) {
      list_entries_ += values->size();
    } else if (const auto* values =
                   std::get_if<std::vector<double>>(&argument)) {
      list_entries_ += values->size();
    } else if (const auto* values = std::get_if<std::vector<bool>>(&argument)) {
      list_entries_ += values->size();
    } else if (const auto* values =
                   std::get_if<std::vector<Scalar>>(&argument)) {
      list_entries_ += values->size();
    }
    return absl::OkStatus();
  }

  absl::Status VisitScalarTensor(const ScalarTensor& scalar) {
    if (scalar.hole != facts_.scalar_tensor_types.size()) {
      return Malformed("scalar tensor holes out of order");
    }
    facts_.scalar_tensor_types.push_back(scalar.data_type);
    return absl::OkStatus();
  }

  // Marks the slot used at this node. Returns whether it is the first use.
  bool Use(uint32_t slot) {
    SlotFacts& facts = facts_.slots[slot];
    const bool first = !used_[slot];
    if (first) {
      used_[slot] = true;
      facts.first_node = static_cast<uint32_t>(node_);
    }
    facts.last_node = static_cast<uint32_t>(node_);
    return first;
  }

  absl::Status VisitOperand(const Node& node, const TensorView& view) {
    if (view.slot >= graph_.slots.size()) {
      return Malformed(absl::StrCat("slot ", view.slot, " out of range"));
    }
    const Slot& slot = graph_.slots[view.slot];
    if (slot.kind == Slot::Kind::kGenerator) {
      return Malformed(
          absl::StrCat("generator slot ", view.slot, " used as a tensor"));
    }
    if (slot.kind == Slot::Kind::kResult && !used_[view.slot]) {
      return Malformed(
          absl::StrCat("slot ", view.slot, " used before it is created"));
    }
    const absl::StatusOr<uint64_t> extent = ExtentBytes(view);
    if (!extent.ok()) return Malformed(extent.status().message());
    SlotFacts& facts = facts_.slots[view.slot];
    if (Use(view.slot)) {
      if (slot.kind == Slot::Kind::kCreated) {
        facts.writes = 1;
      } else {
        facts.reads = !std::binary_search(node.overwrites.begin(),
                                          node.overwrites.end(), view.slot);
      }
    }
    facts.required_bytes = std::max(facts.required_bytes, *extent);
    const uint64_t size = slot.kind == Slot::Kind::kCreated
                              ? slot.created_bytes
                              : result_bytes_[view.slot];
    if (*extent > size) {
      return Malformed(absl::StrCat("view outside slot ", view.slot,
                                    ", which is created with ", size,
                                    " bytes"));
    }
    return absl::OkStatus();
  }

  absl::Status VisitGenerator(uint32_t slot) {
    if (slot >= graph_.slots.size() ||
        graph_.slots[slot].kind != Slot::Kind::kGenerator) {
      return Malformed(absl::StrCat("slot ", slot, " is not a generator"));
    }
    if (used_[slot] && facts_.slots[slot].last_node == node_ &&
        facts_.slots[slot].writes > 0) {
      return Malformed("node draws twice from one generator");
    }
    Use(slot);
    ++facts_.slots[slot].writes;
    facts_.slots[slot].reads = true;
    return absl::OkStatus();
  }

  absl::Status VisitCreation(uint32_t slot) {
    if (slot >= graph_.slots.size() ||
        graph_.slots[slot].kind != Slot::Kind::kResult) {
      return Malformed(absl::StrCat("result in slot ", slot,
                                    ", which is not a result slot"));
    }
    if (!Use(slot)) {
      return Malformed(absl::StrCat("slot ", slot, " is created twice"));
    }
    facts_.slots[slot].writes = 1;
    return absl::OkStatus();
  }

  absl::Status VisitResult(const Result& result) {
    if (const auto* view = std::get_if<TensorView>(&result)) {
      const absl::StatusOr<uint64_t> extent = ExtentBytes(*view);
      if (!extent.ok()) return Malformed(extent.status().message());
      DJINN_RETURN_IF_ERROR(VisitCreation(view->slot));
      facts_.slots[view->slot].required_bytes = *extent;
      result_bytes_[view->slot] = *extent;
    } else if (const auto* unknown = std::get_if<UnknownResult>(&result)) {
      DJINN_RETURN_IF_ERROR(VisitCreation(unknown->slot));
      ++facts_.unknown_results;
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  const GraphCaps& caps_;
  GraphFacts facts_;
  std::vector<bool> used_;
  // Size with which a result slot is created. There is no bound where only the
  // run knows the size.
  std::vector<uint64_t> result_bytes_;
  size_t node_ = 0;
  size_t floats_ = 0;
  size_t list_entries_ = 0;
};

}  // namespace

absl::StatusOr<GraphFacts> Validate(const Graph& graph, const GraphCaps& caps) {
  return Validator(graph, caps).Run();
}

}  // namespace djinn::srg
