// Whether a graph can be cut along the batch: whether what it makes of one
// row depends on no other row, so that it may be executed on some of the
// rows at a time, with the same weights.
//
// The rows are followed from the inputs through all nodes, by what each
// operator is known to do (row_rules.h) and where views look (row_layout.h). A
// storage has its rows in one place or none. What has none is computed in every
// part. Refused are: operators without a rule, draws, writes to what was there
// before, results whose sizes the run decides.
#ifndef SCHEDULER_SEMANTICS_ROWS_BATCH_CUT_H_
#define SCHEDULER_SEMANTICS_ROWS_BATCH_CUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "scheduler/semantics/rows/row_layout.h"

namespace djinn::semantics {

struct BatchCut {
  int64_t rows = 0;
  // By slot, the bytes of a row; 0: it has no rows, and is the same in every
  // part.
  std::vector<int64_t> row_bytes;
  // By node, whether it works on rows: otherwise every part does all of it.
  std::vector<bool> of_rows;
  // At size n the graph is that of rows + n rows.
  srg::SizeHole hole;
};

struct CutInput {
  uint32_t slot = 0;
  RowLayout layout;
};

// `graph` was accepted by srg::Validate() and has no size hole; inputs are
// bound slots of it with as many rows each. FailedPrecondition (MIXES_ROWS)
// names the first node that stands against it, and says why.
absl::StatusOr<BatchCut> CutAlongRows(const srg::Graph& graph,
                                      absl::Span<const CutInput> inputs);

// Looks for the batch: `candidates` are the slots that may have rows, which are
// their outermost dimension then and fill them, and `outputs` those that must.
// Tries the sizes of these dimensions, some few. FailedPrecondition: the first
// refusal of CutAlongRows(), or that there is no such dimension.
absl::StatusOr<BatchCut> FindBatch(const srg::Graph& graph,
                                   absl::Span<const uint32_t> candidates,
                                   absl::Span<const uint32_t> outputs);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROWS_BATCH_CUT_H_
