#include "scheduler/semantics/patterns/products.h"

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"

namespace djinn::semantics {

bool IsProjection(const Frame& frame, int node) {
  if (frame.op_class(node) != OpClass::kMatmul) return false;
  const absl::string_view op = frame.op(node);
  const auto operands = frame.operands(node);
  if (op == "linear") {
    return operands.size() >= 2 && !operands[0].view->sizes.empty();
  }
  const size_t right = op == "addmm" ? 2 : 1;
  return operands.size() > right && operands[right].view->sizes.size() == 2 &&
         frame.IsParameter(operands[right].value);
}

bool IsBatchedProduct(const Frame& frame, int node) {
  if (frame.op_class(node) != OpClass::kMatmul || IsProjection(frame, node)) {
    return false;
  }
  const size_t left = frame.op(node) == "baddbmm" ? 1 : 0;
  return frame.Sizes(node, left).size() >= 3 &&
         frame.Sizes(node, left + 1).size() >= 3;
}

int RowsOperand(const Frame& frame, int product) {
  const absl::string_view op = frame.op(product);
  return op == "addmm" || op == "baddbmm" ? 1 : 0;
}

int FoldingCopy(const Frame& frame, int projection) {
  const int rows = RowsOperand(frame, projection);
  const int copy = frame.Producer(projection, rows);
  const bool folds = copy >= 0 && frame.op(copy) == "clone" &&
                     frame.Sizes(copy, 0).size() > 2 &&
                     frame.Sizes(projection, rows).size() == 2 &&
                     frame.Consumers(copy) == std::vector<int>{projection};
  return folds ? copy : -1;
}

int ProjectedValue(const Frame& frame, int projection) {
  const int copy = FoldingCopy(frame, projection);
  return copy >= 0
             ? frame.operands(copy)[0].value
             : frame.operands(projection)[RowsOperand(frame, projection)].value;
}

std::vector<int> ProjectionsOf(const Frame& frame, int value) {
  std::vector<int> projections;
  for (const int reader : frame.value(value).readers) {
    if (IsProjection(frame, reader)) {
      projections.push_back(reader);
      continue;
    }
    for (const int next : frame.Consumers(reader)) {
      if (IsProjection(frame, next) && FoldingCopy(frame, next) == reader) {
        projections.push_back(next);
      }
    }
  }
  std::sort(projections.begin(), projections.end());
  return projections;
}

void AddFoldingCopies(const Frame& frame, Regions* regions) {
  for (int i = 0; i < frame.node_count(); ++i) {
    if (regions->IsFree(i) || !IsProjection(frame, i)) continue;
    const int copy = FoldingCopy(frame, i);
    if (copy < 0 || !regions->IsFree(copy)) continue;
    regions->Join(regions->region_of(i), {copy, std::string(regions->role(i))});
  }
}

}  // namespace djinn::semantics
