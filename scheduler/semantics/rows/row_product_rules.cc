#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "scheduler/semantics/rows/row_rules.h"

namespace djinn::semantics {
namespace {

absl::Status SumsOverRows() {
  return MixesRows("it sums over the rows, or multiplies one by another");
}

// x W^T + b for each vector of x.
absl::Status Linear(RowCall* call) {
  const RowOperand* const input = call->Tensor(0);
  DJINN_RETURN_IF_ERROR(call->KeepWhole(call->Tensor(1), "weight"));
  DJINN_RETURN_IF_ERROR(call->KeepWhole(call->Tensor(2), "bias"));
  if (input == nullptr || !input->cut()) {
    return MixesRows("its first operand has no rows");
  }
  if (input->rows->dim == input->dims() - 1) return SumsOverRows();
  call->SetResults(*input->rows);
  return absl::OkStatus();
}

// Matrix products, or products of batches of matrices, which are broadcast.
// Cuts the batches of both operands, or the rows of the left matrix.
absl::Status Product(RowCall* call, RowOperand* left, RowOperand* right) {
  if (left == nullptr || right == nullptr) return SumsOverRows();
  const bool by_vector = right->dims() == 1;
  if (left->dims() < 2) return MixesRows("its left operand is a vector");
  const srg::TensorView* const result = call->result(0);
  if (result == nullptr) return SumsOverRows();
  const int dims = static_cast<int>(result->sizes.size());
  if (left->cut() && left->rows->dim == left->dims() - 2) {
    DJINN_RETURN_IF_ERROR(call->KeepWhole(right, "right operand"));
    call->SetResults({by_vector ? dims - 1 : dims - 2, left->rows->block});
    return absl::OkStatus();
  }
  if (by_vector) {
    DJINN_RETURN_IF_ERROR(call->KeepWhole(right, "right operand"));
    if (left->rows->dim == left->dims() - 1) return SumsOverRows();
    call->SetResults(
        {dims - (left->dims() - left->rows->dim) + 1, left->rows->block});
    return absl::OkStatus();
  }
  for (const RowOperand* operand : {left, right}) {
    if (operand->cut() && operand->rows->dim >= operand->dims() - 2) {
      return SumsOverRows();
    }
  }
  RowOperand* const both[] = {left, right};
  DJINN_ASSIGN_OR_RETURN(const RowCall::Place place,
                         call->Align(both, /*inner=*/2));
  call->SetResults({dims - place.from_end, place.block});
  return absl::OkStatus();
}

absl::Status MatMul(RowCall* call) {
  return Product(call, call->Tensor(0), call->Tensor(1));
}

// A product plus an addend that is broadcast to it.
absl::Status AddedProduct(RowCall* call) {
  RowOperand* const addend = call->Tensor(0);
  RowOperand* const left = call->Tensor(1);
  RowOperand* const right = call->Tensor(2);
  if (addend == nullptr || left == nullptr || right == nullptr ||
      (!left->cut() && !right->cut())) {
    return MixesRows("only its addend has rows");
  }
  DJINN_RETURN_IF_ERROR(Product(call, left, right));
  const RowDimension rows = *call->result_rows()[0];
  const int dims = static_cast<int>(call->result(0)->sizes.size());
  const int dim = addend->dims() - (dims - rows.dim);
  if (dim < 0 || addend->size(dim) == 1) {
    return call->KeepWhole(addend, "addend");
  }
  return call->CutAt(addend, {dim, rows.block});
}

// Works on the labels of operands and result, such as "bij,bjk->bik". The rows'
// label must be the same in all operands that have rows, and must be in the
// result.
absl::Status Einsum(RowCall* call) {
  const std::string* const equation = call->Text(0);
  const std::vector<RowOperand*> operands = call->Tensors(1);
  if (equation == nullptr || call->result(0) == nullptr) return SumsOverRows();
  std::string text = *equation;
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  const std::vector<std::string> inputs = absl::StrSplit(sides[0], ',');
  const auto plain = [](const std::string& labels, size_t dims) {
    return labels.size() == dims && absl::c_all_of(labels, [&](char label) {
             return absl::ascii_isalpha(static_cast<unsigned char>(label)) &&
                    absl::c_count(labels, label) == 1;
           });
  };
  if (sides.size() != 2 || inputs.size() != operands.size() ||
      !plain(sides[1], call->result(0)->sizes.size())) {
    return MixesRows("its equation is not a plain one");
  }
  char label = 0;
  int64_t block = 1;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!plain(inputs[i], operands[i]->view->sizes.size())) {
      return MixesRows("its equation is not a plain one");
    }
    if (label == 0 && operands[i]->cut()) {
      label = inputs[i][operands[i]->rows->dim];
      block = operands[i]->rows->block;
    }
  }
  const size_t result = sides[1].find(label);
  if (label == 0 || result == std::string::npos) return SumsOverRows();
  for (size_t i = 0; i < operands.size(); ++i) {
    const size_t dim = inputs[i].find(label);
    if (dim == std::string::npos) {
      DJINN_RETURN_IF_ERROR(call->KeepWhole(operands[i], "other operand"));
      continue;
    }
    DJINN_RETURN_IF_ERROR(
        call->CutAt(operands[i], {static_cast<int>(dim), block}));
  }
  call->SetResults({static_cast<int>(result), block});
  return absl::OkStatus();
}

// Queries, keys and values of one batch; the mask is broadcast to their scores.
absl::Status Attention(RowCall* call, int mask_argument) {
  RowOperand* const query = call->Tensor(0);
  RowOperand* const key = call->Tensor(1);
  RowOperand* const value = call->Tensor(2);
  if (query == nullptr || key == nullptr || value == nullptr ||
      key->dims() != query->dims() || value->dims() != query->dims()) {
    return MixesRows("its operands have unlike dimensions");
  }
  const RowDimension rows = *call->FirstCut().rows;
  const int dims = query->dims();
  if (dims < 3 || call->FirstCut().dims() != dims || rows.dim != 0) {
    return MixesRows("its rows are not its batch");
  }
  for (RowOperand* operand : {query, key, value}) {
    DJINN_RETURN_IF_ERROR(call->CutAt(operand, rows));
  }
  if (RowOperand* const mask = call->Tensor(mask_argument)) {
    const int dim = mask->dims() - dims;
    if (dim < 0 || mask->size(dim) == 1) {
      DJINN_RETURN_IF_ERROR(call->KeepWhole(mask, "mask"));
    } else {
      DJINN_RETURN_IF_ERROR(call->CutAt(mask, {dim, rows.block}));
    }
  }
  call->SetResults(rows);
  return absl::OkStatus();
}

absl::Status WholeAttention(RowCall* call) { return Attention(call, 3); }
absl::Status CpuAttention(RowCall* call) { return Attention(call, 5); }

}  // namespace

ProductRule FindProductRule(absl::string_view op) {
  static constexpr struct {
    absl::string_view op;
    ProductRule rule;
  } kRules[] = {
      {"linear", &Linear},
      {"mm", &MatMul},
      {"mv", &MatMul},
      {"bmm", &MatMul},
      {"matmul", &MatMul},
      {"addmm", &AddedProduct},
      {"addmv", &AddedProduct},
      {"baddbmm", &AddedProduct},
      {"einsum", &Einsum},
      {"scaled_dot_product_attention", &WholeAttention},
      {"_scaled_dot_product_flash_attention_for_cpu", &CpuAttention},
  };
  for (const auto& each : kRules) {
    if (op == each.op) return each.rule;
  }
  return nullptr;
}

}  // namespace djinn::semantics
