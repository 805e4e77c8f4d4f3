// Decides whether a graph can be cut along the batch. That requires that its
// results for one row depend on no other row, so that it may be executed on
// some of the rows at a time, with the same weights.
//
// The analysis follows the rows from the inputs through all nodes, by the rules
// of the operators (row_rules.h) and the layout of views (row_layout.h). The
// rows of a storage have one layout, or the storage has none. Every part
// computes what has no rows.
//
// Refuses operators without a rule, draws, writes to storages from before the
// run, and results whose sizes the run decides.
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
  // Bytes of a row, by slot. 0 means that the slot has no rows and is the same
  // in every part.
  std::vector<int64_t> row_bytes;
  // Whether a node works on rows, by node. Every part executes the other nodes
  // completely.
  std::vector<bool> of_rows;
  // Describes how the graph depends on the number of rows: at size n it is the
  // graph for rows + n rows.
  srg::SizeHole hole;
};

struct CutInput {
  uint32_t slot = 0;
  RowLayout layout;
};

// Finds how to cut a graph that srg::Validate() accepted and that has no size
// hole. `inputs` are bound slots with equal numbers of rows. FailedPrecondition
// (MIXES_ROWS) names the first node that prevents the cut, and the reason.
absl::StatusOr<BatchCut> CutAlongRows(const srg::Graph& graph,
                                      absl::Span<const CutInput> inputs);

// Finds the batch and how to cut it. `candidates` are the slots that may have
// rows; the rows are then their outermost dimension and fill them. `outputs`
// are slots that must have rows. Tries a few sizes of these dimensions.
// FailedPrecondition: the first refusal of CutAlongRows(), or that there is no
// such dimension.
absl::StatusOr<BatchCut> FindBatch(const srg::Graph& graph,
                                   absl::Span<const uint32_t> candidates,
                                   absl::Span<const uint32_t> outputs);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROWS_BATCH_CUT_H_
