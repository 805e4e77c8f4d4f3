#include "scheduler/semantics/rows/batch_cut.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/srg/size_hole.h"
#include "scheduler/semantics/rows/row_call.h"
#include "scheduler/semantics/rows/row_rules.h"

namespace djinn::semantics {
namespace {

// Number of sizes that are tried as the size of the batch.
constexpr size_t kMaxSizes = 4;

// Follows the rows through the nodes, in order.
class Walk {
 public:
  Walk(const srg::Graph& graph, absl::Span<const CutInput> inputs)
      : graph_(graph), slots_(graph.slots.size()) {
    cut_.of_rows.assign(graph.nodes.size(), false);
    for (const CutInput& input : inputs) {
      cut_.rows = input.layout.rows;
      slots_[input.slot] = {RowOperand::State::kCut, input.layout};
    }
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (graph.slots[slot].kind == srg::Slot::Kind::kCreated) {
        slots_[slot].state = RowOperand::State::kOpen;
        slots_[slot].bytes = graph.slots[slot].created_bytes;
      }
    }
  }

  absl::StatusOr<BatchCut> Run() && {
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      const absl::Status status = Visit(node);
      if (!status.ok()) return Refuse(node, status.message());
    }
    DJINN_RETURN_IF_ERROR(FindSlopes());
    for (const Slot& slot : slots_) {
      cut_.row_bytes.push_back(
          slot.state == RowOperand::State::kCut ? slot.layout.row_bytes : 0);
    }
    return std::move(cut_);
  }

 private:
  struct Slot {
    RowOperand::State state = RowOperand::State::kWhole;
    RowLayout layout;
    // Size of a slot in state kOpen.
    uint64_t bytes = 0;
  };
  // A repeated view, and the dimension that grows in a part of more rows.
  struct Repeated {
    const srg::TensorView* view;
    RowDimension rows;
  };

  absl::Status Refuse(size_t node, absl::string_view why) const {
    const srg::Operator& op =
        graph_.operators[graph_.nodes[node].operator_index];
    return MixesRows(
        absl::StrCat("node ", node, " (", op.FullName(), "): ", why));
  }

  absl::StatusOr<std::vector<RowOperand>> Operands(const srg::Node& node) {
    std::vector<RowOperand> operands;
    absl::Status status;
    const auto add = [&](const srg::TensorView& view, size_t argument) {
      const Slot& slot = slots_[view.slot];
      RowOperand& operand = operands.emplace_back();
      operand.view = &view;
      operand.argument = static_cast<int>(argument);
      operand.state = slot.state;
      operand.written = absl::c_binary_search(node.writes, view.slot);
      if (slot.state != RowOperand::State::kCut) return;
      operand.rows = FindRows(view, slot.layout);
      if (!operand.rows.has_value() && status.ok()) {
        status = MixesRows(
            absl::StrCat("operand ", argument, ", ", srg::DescribeView(view),
                         ", is a view that takes some of the rows, or mixes "
                         "them with another dimension"));
      }
    };
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      if (const auto* view = std::get_if<srg::TensorView>(&node.arguments[i])) {
        add(*view, i);
      } else if (const auto* list =
                     std::get_if<std::vector<srg::TensorListEntry>>(
                         &node.arguments[i])) {
        for (const srg::TensorListEntry& entry : *list) {
          const auto* element = std::get_if<srg::TensorView>(&entry);
          if (element != nullptr) add(*element, i);
        }
      }
    }
    DJINN_RETURN_IF_ERROR(status);
    return operands;
  }

  absl::Status Check(const srg::Node& node) const {
    const srg::Operator& op = graph_.operators[node.operator_index];
    if (!absl::StartsWith(op.name, "aten::")) {
      return MixesRows("it is none of PyTorch's own operators");
    }
    if (node.implicit_generator_slot.has_value() ||
        absl::c_any_of(node.arguments, [](const srg::Argument& argument) {
          return std::holds_alternative<srg::GeneratorSlot>(argument);
        })) {
      return MixesRows("it draws random numbers");
    }
    for (const srg::Result& result : node.results) {
      if (std::holds_alternative<srg::UnknownResult>(result)) {
        return MixesRows("the sizes of what it makes depend on data");
      }
    }
    for (const uint32_t slot : node.writes) {
      if (graph_.slots[slot].kind == srg::Slot::Kind::kBound) {
        return MixesRows("it writes what was there before");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Visit(size_t index) {
    const srg::Node& node = graph_.nodes[index];
    DJINN_RETURN_IF_ERROR(Check(node));
    DJINN_ASSIGN_OR_RETURN(std::vector<RowOperand> operands, Operands(node));
    RowCall call(graph_, node, cut_.rows, std::move(operands));
    if (absl::c_none_of(call.operands(), [](const RowOperand& operand) {
          return operand.cut();
        })) {
      VisitWhole(call);
      return absl::OkStatus();
    }
    cut_.of_rows[index] = true;
    DJINN_RETURN_IF_ERROR(ApplyRowRule(&call));
    for (const RowOperand& operand : call.operands()) {
      DJINN_RETURN_IF_ERROR(Decide(operand));
    }
    for (const uint32_t slot : node.writes) {
      if (slots_[slot].state != RowOperand::State::kCut) {
        return MixesRows("it writes rows into what has none");
      }
    }
    for (int i = 0; i < call.result_count(); ++i) {
      const srg::TensorView* const view = call.result(i);
      if (view == nullptr) continue;
      const std::optional<RowDimension>& rows = call.result_rows()[i];
      if (!rows.has_value() || rows->dim < 0 ||
          rows->dim >= static_cast<int>(view->sizes.size()) ||
          view->sizes[rows->dim] != rows->block * cut_.rows) {
        return MixesRows("its result has no dimension for the rows");
      }
      const std::optional<RowLayout> layout = LayoutOf(*view, *rows, cut_.rows);
      if (!layout.has_value()) {
        return MixesRows("its result's rows do not lie apart");
      }
      slots_[view->slot] = {RowOperand::State::kCut, *layout};
    }
    return absl::OkStatus();
  }

  // Handles a call without rows, which every part executes.
  void VisitWhole(const RowCall& call) {
    const bool fills = FillsWithOneNumber(call.op());
    for (const RowOperand& operand : call.operands()) {
      Slot& slot = slots_[operand.view->slot];
      const bool stays_open = fills && operand.written &&
                              slot.state == RowOperand::State::kOpen &&
                              srg::CoversStorage(*operand.view, slot.bytes);
      if (!stays_open) slot.state = RowOperand::State::kWhole;
    }
    for (int i = 0; i < call.result_count(); ++i) {
      const srg::TensorView* const view = call.result(i);
      if (view == nullptr) continue;
      Slot& slot = slots_[view->slot];
      slot = {};
      const absl::StatusOr<uint64_t> bytes = srg::ExtentBytes(*view);
      if (SizesArgument(call.op()) >= 0 && bytes.ok()) {
        slot.state = RowOperand::State::kOpen;
        slot.bytes = *bytes;
      }
    }
  }

  // Applies a rule's decision about an operand to its slot.
  absl::Status Decide(const RowOperand& operand) {
    Slot& slot = slots_[operand.view->slot];
    if (operand.cut()) return absl::OkStatus();
    std::optional<RowLayout> layout;
    if (operand.rows.has_value()) {
      if (operand.view->strides[operand.rows->dim] == 0) {
        repeated_.push_back({operand.view, *operand.rows});
      } else {
        layout = LayoutOf(*operand.view, *operand.rows, cut_.rows);
      }
    }
    const Slot decided = {layout.has_value() ? RowOperand::State::kCut
                                             : RowOperand::State::kWhole,
                          layout.value_or(RowLayout())};
    // Another operand of the call may have decided differently.
    if (slot.state != RowOperand::State::kOpen &&
        (slot.state != decided.state || slot.layout != decided.layout)) {
      return MixesRows("what it is given has its rows in two places");
    }
    slot = decided;
    return absl::OkStatus();
  }

  // --- Growth of the graph's integers with each further row ---

  // Sets the integers of `slope` to the growth of those of `view`.
  absl::Status SetSlopes(const srg::TensorView& view, srg::TensorView* slope) {
    slope->storage_offset = 0;
    slope->sizes.assign(view.sizes.size(), 0);
    slope->strides.assign(view.sizes.size(), 0);
    for (const Repeated& repeated : repeated_) {
      if (repeated.view == &view) {
        slope->sizes[repeated.rows.dim] = repeated.rows.block;
        return absl::OkStatus();
      }
    }
    const Slot& slot = slots_[view.slot];
    if (slot.state != RowOperand::State::kCut) return absl::OkStatus();
    const std::optional<RowDimension> rows = FindRows(view, slot.layout);
    if (!rows.has_value()) {
      return MixesRows("a view of what is filled takes some of the rows");
    }
    RowSlopes slopes = SlopesOf(view, slot.layout, *rows);
    slope->storage_offset = slopes.storage_offset;
    slope->sizes = std::move(slopes.sizes);
    slope->strides = std::move(slopes.strides);
    return absl::OkStatus();
  }

  absl::Status SetNodeSlopes(const srg::Node& node, srg::Node* slope) {
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      srg::Argument& out = slope->arguments[i];
      if (const auto* view = std::get_if<srg::TensorView>(&node.arguments[i])) {
        DJINN_RETURN_IF_ERROR(
            SetSlopes(*view, &std::get<srg::TensorView>(out)));
      } else if (const auto* list =
                     std::get_if<std::vector<srg::TensorListEntry>>(
                         &node.arguments[i])) {
        auto& out_list = std::get<std::vector<srg::TensorListEntry>>(out);
        for (size_t k = 0; k < list->size(); ++k) {
          const auto* element = std::get_if<srg::TensorView>(&(*list)[k]);
          if (element == nullptr) continue;
          DJINN_RETURN_IF_ERROR(
              SetSlopes(*element, &std::get<srg::TensorView>(out_list[k])));
        }
      } else if (auto* integer = std::get_if<int64_t>(&out)) {
        *integer = 0;
      } else if (auto* integers = std::get_if<std::vector<int64_t>>(&out)) {
        integers->assign(integers->size(), 0);
      } else if (auto* scalars = std::get_if<std::vector<srg::Scalar>>(&out)) {
        for (srg::Scalar& scalar : *scalars) {
          if (std::holds_alternative<int64_t>(scalar)) scalar = int64_t{0};
        }
      }
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      const auto* view = std::get_if<srg::TensorView>(&node.results[i]);
      if (view == nullptr) continue;
      auto& out = std::get<srg::TensorView>(slope->results[i]);
      DJINN_RETURN_IF_ERROR(SetSlopes(*view, &out));
      DJINN_RETURN_IF_ERROR(SetSizesArgument(node, *view, out, slope));
    }
    return absl::OkStatus();
  }

  // The sizes in a factory's arguments are those of its result.
  absl::Status SetSizesArgument(const srg::Node& node,
                                const srg::TensorView& made,
                                const srg::TensorView& made_slope,
                                srg::Node* slope) {
    if (slots_[made.slot].state != RowOperand::State::kCut) {
      return absl::OkStatus();
    }
    absl::string_view op = graph_.operators[node.operator_index].name;
    op.remove_prefix(absl::string_view("aten::").size());
    const int argument = SizesArgument(op);
    if (argument < 0) return absl::OkStatus();
    const auto* sizes =
        static_cast<size_t>(argument) < node.arguments.size()
            ? std::get_if<std::vector<int64_t>>(&node.arguments[argument])
            : nullptr;
    if (sizes == nullptr || !absl::c_equal(*sizes, made.sizes)) {
      return MixesRows("a factory's sizes are not those of what it makes");
    }
    std::get<std::vector<int64_t>>(slope->arguments[argument])
        .assign(made_slope.sizes.begin(), made_slope.sizes.end());
    return absl::OkStatus();
  }

  absl::Status FindSlopes() {
    srg::Graph slopes = graph_;
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      const absl::Status status =
          SetNodeSlopes(graph_.nodes[node], &slopes.nodes[node]);
      if (!status.ok()) return Refuse(node, status.message());
    }
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      srg::Slot& out = slopes.slots[slot];
      if (out.kind != srg::Slot::Kind::kCreated) continue;
      const uint64_t bytes = std::exchange(out.created_bytes, 0);
      if (slots_[slot].state != RowOperand::State::kCut) continue;
      const auto rows = static_cast<uint64_t>(cut_.rows);
      if (bytes %
              (rows * static_cast<uint64_t>(slots_[slot].layout.row_bytes)) !=
          0) {
        return MixesRows(absl::StrCat("slot ", slot, " is not all rows"));
      }
      out.created_bytes = bytes / rows;
    }
    uint32_t position = 0;
    srg::ForEachInteger(slopes, [&](const auto& slope) {
      if (slope != 0) {
        cut_.hole.integers.push_back(position);
        cut_.hole.slopes.push_back(static_cast<int64_t>(slope));
      }
      ++position;
    });
    return absl::OkStatus();
  }

  const srg::Graph& graph_;
  std::vector<Slot> slots_;
  std::vector<Repeated> repeated_;
  BatchCut cut_;
};

// The outermost dimension of a slot, according to its coarsest view that covers
// all that is ever read; 0 if there is none.
struct Outermost {
  int64_t size = 0;
  int64_t bytes = 0;  // of the slot
};

std::vector<Outermost> OutermostDimensions(const srg::Graph& graph) {
  std::vector<Outermost> found(graph.slots.size());
  const auto look = [&](const srg::TensorView& view) {
    const absl::StatusOr<uint64_t> extent = srg::ExtentBytes(view);
    if (!extent.ok()) return;
    Outermost& slot = found[view.slot];
    const auto bytes = static_cast<int64_t>(*extent);
    if (bytes < slot.bytes) return;
    if (bytes > slot.bytes) slot = {0, bytes};
    if (view.sizes.empty() || !srg::CoversStorage(view, *extent)) return;
    size_t outer = 0;
    for (size_t i = 1; i < view.sizes.size(); ++i) {
      if (view.sizes[i] > 1 &&
          (view.sizes[outer] == 1 || view.strides[i] > view.strides[outer])) {
        outer = i;
      }
    }
    if (slot.size == 0 || view.sizes[outer] < slot.size) {
      slot.size = view.sizes[outer];
    }
  };
  for (const srg::Node& node : graph.nodes) {
    srg::ForEachOperand(node, look);
    for (const srg::Result& result : node.results) {
      if (const auto* view = std::get_if<srg::TensorView>(&result)) look(*view);
    }
  }
  return found;
}

}  // namespace

absl::StatusOr<BatchCut> CutAlongRows(const srg::Graph& graph,
                                      absl::Span<const CutInput> inputs) {
  if (!graph.size_hole.empty()) {
    return MixesRows("its sizes vary from run to run");
  }
  if (inputs.empty()) return MixesRows("nothing that it is given has rows");
  return Walk(graph, inputs).Run();
}

absl::StatusOr<BatchCut> FindBatch(const srg::Graph& graph,
                                   absl::Span<const uint32_t> candidates,
                                   absl::Span<const uint32_t> outputs) {
  const std::vector<Outermost> outermost = OutermostDimensions(graph);
  std::vector<int64_t> sizes;
  for (const absl::Span<const uint32_t> slots : {candidates, outputs}) {
    for (const uint32_t slot : slots) {
      const int64_t size = outermost[slot].size;
      if (size < 2 || absl::c_linear_search(sizes, size)) continue;
      if (sizes.size() < kMaxSizes) sizes.push_back(size);
    }
  }
  // Tries candidates whose outermost dimension is a multiple of `rows`, or, if
  // `exact`, only those where it equals `rows`.
  const auto attempt = [&](int64_t rows,
                           bool exact) -> absl::StatusOr<BatchCut> {
    std::vector<CutInput> inputs;
    for (const uint32_t slot : candidates) {
      const Outermost& found = outermost[slot];
      if (found.size == 0 || found.size % rows != 0) continue;
      if (exact && found.size != rows) continue;
      inputs.push_back({slot, {rows, found.bytes / rows}});
    }
    DJINN_ASSIGN_OR_RETURN(BatchCut cut, CutAlongRows(graph, inputs));
    for (const uint32_t slot : outputs) {
      if (cut.row_bytes[slot] * rows == outermost[slot].bytes) continue;
      return MixesRows(absl::StrCat(
          "slot ", slot,
          ", which leaves it, does not hold one row after the other"));
    }
    return cut;
  };
  absl::Status refusal;
  for (const int64_t rows : sizes) {
    for (const bool exact : {true, false}) {
      absl::StatusOr<BatchCut> cut = attempt(rows, exact);
      if (cut.ok()) return cut;
      if (refusal.ok()) refusal = cut.status();
    }
  }
  if (!refusal.ok()) return refusal;
  return MixesRows(
      "nothing that it is given has a dimension of at least two rows");
}

}  // namespace djinn::semantics
