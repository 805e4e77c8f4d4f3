// Holds the rules of row_rules.h for matrix products and attention.
#ifndef SCHEDULER_SEMANTICS_ROWS_ROW_PRODUCT_RULES_H_
#define SCHEDULER_SEMANTICS_ROWS_ROW_PRODUCT_RULES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "scheduler/semantics/rows/row_call.h"

namespace djinn::semantics {

using ProductRule = absl::Status (*)(RowCall* call);

// Returns the rule for the operator; null for other operators.
ProductRule FindProductRule(absl::string_view op);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROWS_ROW_PRODUCT_RULES_H_
