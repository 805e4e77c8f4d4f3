// Recognises matrix products, whole or in the parts into which a client splits
// them (client_lib/capture/registration/split_rule.h).
//
// linear() and matmul() of rows with more than two dimensions are split into a
// product of matrices. Rows that do not form one matrix in memory are copied
// first. Such a copy, which this header calls folding, belongs to its product.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_PRODUCTS_H_
#define SCHEDULER_SEMANTICS_PATTERNS_PRODUCTS_H_

#include <vector>

#include "scheduler/semantics/patterns/frame.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Returns whether the node is a matrix product whose right operand is a weight,
// as a Linear module calls it.
bool IsProjection(const Frame& frame, int node);
// Returns whether the node is a matrix product of batches: neither operand is a
// weight.
bool IsBatchedProduct(const Frame& frame, int node);
// Returns which operand of a product holds the rows that it multiplies.
int RowsOperand(const Frame& frame, int product);
// Returns the folding copy of a projection; -1 when it has none.
int FoldingCopy(const Frame& frame, int projection);
// Returns the value whose rows a projection multiplies, before a folding copy.
int ProjectedValue(const Frame& frame, int projection);
// Returns the projections of a value, ascending, also those behind a folding
// copy.
std::vector<int> ProjectionsOf(const Frame& frame, int value);

// Adds free folding copies to the regions of their projections.
void AddFoldingCopies(const Frame& frame, Regions* regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_PRODUCTS_H_
