// Which operators make each row of what they return from the same row of what
// they are given. A table: operators without an entry mix rows, as far as is
// known.
//
// To add one: a line in the table in row_rules.cc, with one of the rules there
// or a new one; a case that it refuses in batch_cut_test.cc.
#ifndef SCHEDULER_SEMANTICS_ROWS_ROW_RULES_H_
#define SCHEDULER_SEMANTICS_ROWS_ROW_RULES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "scheduler/semantics/rows/row_call.h"

namespace djinn::semantics {

// Decides what the call's operands and results have to be, of which at least
// one operand is cut. FailedPrecondition (MIXES_ROWS) with why the call is not
// to be cut.
absl::Status ApplyRowRule(RowCall* call);

// Of an operator that fills a new tensor with one number: the argument that
// says its sizes. -1 for all others.
int SizesArgument(absl::string_view op);

// Whether the operator writes one number, which no row has a part in, all over
// its operand.
bool FillsWithOneNumber(absl::string_view op);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROWS_ROW_RULES_H_
