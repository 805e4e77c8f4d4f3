// Knows which operators compute each row of their results from the same row of
// their operands. Operators without an entry in the table count as mixing rows.
//
// To add an operator, add a line to the table in row_rules.cc, with an existing
// or a new rule, and a refused case to batch_cut_test.cc.
#ifndef SCHEDULER_SEMANTICS_ROWS_ROW_RULES_H_
#define SCHEDULER_SEMANTICS_ROWS_ROW_RULES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "scheduler/semantics/rows/row_call.h"

namespace djinn::semantics {

// Decides what the operands and results of the call have to be. At least one
// operand must be cut. FailedPrecondition (MIXES_ROWS) gives the reason why the
// call cannot be cut.
absl::Status ApplyRowRule(RowCall* call);

// Returns the argument that gives the sizes, for an operator that fills a new
// tensor with one number; -1 for all others.
int SizesArgument(absl::string_view op);

// Returns whether the operator fills its operand with one number that does not
// depend on any row.
bool FillsWithOneNumber(absl::string_view op);

using ProductRule = absl::Status (*)(RowCall* call);

// Returns the rule of a matrix product or attention, in row_product_rules.cc;
// null for other operators.
ProductRule FindProductRule(absl::string_view op);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROWS_ROW_RULES_H_
