#include "scheduler/semantics/rows/row_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::semantics {

absl::Status MixesRows(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "MIXES_ROWS", why);
}

RowCall::RowCall(const srg::Graph& graph, const srg::Node& node, int64_t rows,
                 std::vector<RowOperand> operands)
    : node_(node),
      rows_(rows),
      overload_(graph.operators[node.operator_index].overload),
      operands_(std::move(operands)),
      result_rows_(node.results.size()) {
  op_ = std::string(
      absl::StripPrefix(graph.operators[node.operator_index].name, "aten::"));
}

RowOperand* RowCall::Tensor(int argument) {
  for (RowOperand& operand : operands_) {
    if (operand.argument == argument) return &operand;
  }
  return nullptr;
}

std::vector<RowOperand*> RowCall::Tensors(int argument) {
  std::vector<RowOperand*> found;
  for (RowOperand& operand : operands_) {
    if (operand.argument == argument) found.push_back(&operand);
  }
  return found;
}

std::optional<int64_t> RowCall::Integer(int argument) const {
  if (static_cast<size_t>(argument) >= node_.arguments.size()) return {};
  const auto* value = std::get_if<int64_t>(&node_.arguments[argument]);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> RowCall::Boolean(int argument) const {
  if (static_cast<size_t>(argument) >= node_.arguments.size()) return {};
  const auto* value = std::get_if<bool>(&node_.arguments[argument]);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::vector<int64_t>> RowCall::Integers(int argument) const {
  if (const std::optional<int64_t> one = Integer(argument)) {
    return std::vector<int64_t>{*one};
  }
  if (static_cast<size_t>(argument) >= node_.arguments.size()) return {};
  const auto* list =
      std::get_if<std::vector<int64_t>>(&node_.arguments[argument]);
  return list == nullptr ? std::nullopt : std::optional(*list);
}

bool RowCall::IsNone(int argument) const {
  return static_cast<size_t>(argument) < node_.arguments.size() &&
         std::holds_alternative<std::monostate>(node_.arguments[argument]);
}

const std::string* RowCall::Text(int argument) const {
  if (static_cast<size_t>(argument) >= node_.arguments.size()) return nullptr;
  return std::get_if<std::string>(&node_.arguments[argument]);
}

absl::StatusOr<int> RowCall::Dimension(int64_t dim, int dims) {
  if (dim < 0) dim += dims;
  if (dim < 0 || dim >= dims) {
    return MixesRows("it names a dimension that is not there");
  }
  return static_cast<int>(dim);
}

const RowOperand& RowCall::FirstCut() const {
  for (const RowOperand& operand : operands_) {
    if (operand.cut()) return operand;
  }
  return operands_.front();
}

absl::Status RowCall::KeepWhole(RowOperand* operand, absl::string_view what) {
  if (operand == nullptr || !operand->cut()) return absl::OkStatus();
  return MixesRows(absl::StrCat("its ", what, " depends on the row"));
}

absl::Status RowCall::CutAt(RowOperand* operand, const RowDimension& rows) {
  if (operand->rows == rows) return absl::OkStatus();
  const auto refuse = [&] {
    return MixesRows(absl::StrCat(
        "operand ", operand->argument, ", ", srg::DescribeView(*operand->view),
        ", does not have its rows where the others have them"));
  };
  if (operand->rows.has_value() || rows.dim < 0 ||
      rows.dim >= operand->dims() ||
      operand->size(rows.dim) != rows.block * rows_) {
    return refuse();
  }
  const bool repeated =
      operand->view->strides[rows.dim] == 0 && !operand->written;
  const bool open = operand->state == RowOperand::State::kOpen &&
                    LayoutOf(*operand->view, rows, rows_).has_value();
  if (!repeated && !open) return refuse();
  operand->rows = rows;
  return absl::OkStatus();
}

absl::StatusOr<RowCall::Place> RowCall::Align(
    absl::Span<RowOperand* const> operands, int inner) {
  Place place;
  for (const RowOperand* operand : operands) {
    if (operand->cut()) {
      place = {operand->dims() - operand->rows->dim, operand->rows->block};
      break;
    }
  }
  if (place.from_end == 0) return MixesRows("what is cut is none of these");
  if (place.from_end <= inner) {
    return MixesRows("it goes along the dimension of the rows");
  }
  for (RowOperand* operand : operands) {
    const int dim = operand->dims() - place.from_end;
    if (dim < 0 || operand->size(dim) == 1) {
      DJINN_RETURN_IF_ERROR(KeepWhole(operand, "other operand"));
      continue;
    }
    DJINN_RETURN_IF_ERROR(CutAt(operand, {dim, place.block}));
  }
  return place;
}

const srg::TensorView* RowCall::result(int index) const {
  return index < result_count()
             ? std::get_if<srg::TensorView>(&node_.results[index])
             : nullptr;
}

void RowCall::SetResults(const RowDimension& rows) {
  for (int i = 0; i < result_count(); ++i) {
    if (result(i) != nullptr) result_rows_[i] = rows;
  }
}

}  // namespace djinn::semantics
