// Presents a call to the rules about rows: which of its operands are cut,
// where, and what the results must be as a consequence.
#ifndef SCHEDULER_SEMANTICS_ROWS_ROW_CALL_H_
#define SCHEDULER_SEMANTICS_ROWS_ROW_CALL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "scheduler/semantics/rows/row_layout.h"

namespace djinn::semantics {

struct RowOperand {
  enum class State : uint8_t {
    kWhole,  // the same in every part
    kCut,
    // One number throughout, not decided yet: it may become either.
    kOpen,
  };
  const srg::TensorView* view = nullptr;
  int argument = 0;
  State state = State::kWhole;
  // Where the operand is cut. If the state is not kCut, where a rule decided
  // that it must be cut; unset if none did.
  std::optional<RowDimension> rows;
  bool written = false;

  bool cut() const { return state == State::kCut; }
  int dims() const { return static_cast<int>(view->sizes.size()); }
  int64_t size(int dim) const { return view->sizes[dim]; }
};

// A call whose operands and results a rule decides about. A refusal gives the
// reason, without naming the call.
class RowCall {
 public:
  RowCall(const srg::Graph& graph, const srg::Node& node, int64_t rows,
          std::vector<RowOperand> operands);

  // Return the operator's name and overload, such as "sum" and "dim_IntList".
  absl::string_view op() const { return op_; }
  absl::string_view overload() const { return overload_; }
  int64_t rows() const { return rows_; }
  const srg::Node& node() const { return node_; }
  std::vector<RowOperand>& operands() { return operands_; }
  const std::vector<RowOperand>& operands() const { return operands_; }

  // --- Arguments of the schema ---

  // Returns null where the argument is no tensor.
  RowOperand* Tensor(int argument);
  std::vector<RowOperand*> Tensors(int argument);
  std::optional<int64_t> Integer(int argument) const;
  std::optional<bool> Boolean(int argument) const;
  // Returns the integers of a list, or one integer; nothing for None.
  std::optional<std::vector<int64_t>> Integers(int argument) const;
  bool IsNone(int argument) const;
  const std::string* Text(int argument) const;
  // Returns the index of a dimension among `dims`; a negative `dim` counts from
  // the end.
  static absl::StatusOr<int> Dimension(int64_t dim, int dims);

  // --- Decisions of rules ---

  // Returns the first operand that is cut. Requires that there is one.
  const RowOperand& FirstCut() const;
  // Requires that the operand is the same in every part. Accepts null.
  absl::Status KeepWhole(RowOperand* operand, absl::string_view what);
  // Requires that the operand is cut at `rows`, or can be cut there: an operand
  // can if it holds one number throughout, or repeats without taking memory.
  absl::Status CutAt(RowOperand* operand, const RowDimension& rows);
  // Requires that all operands, broadcast to one another, are cut at one place.
  // Operands without that dimension, or of size 1 there, are whole. Returns the
  // place, counted from the last dimension (1 for the last). The last `inner`
  // dimensions are not aligned.
  struct Place {
    int from_end = 0;
    int64_t block = 1;
  };
  absl::StatusOr<Place> Align(absl::Span<RowOperand* const> operands,
                              int inner = 0);

  // --- Results ---

  const srg::TensorView* result(int index) const;
  int result_count() const { return static_cast<int>(node_.results.size()); }
  // Cuts all results at `rows`.
  void SetResults(const RowDimension& rows);
  const std::vector<std::optional<RowDimension>>& result_rows() const {
    return result_rows_;
  }

 private:
  const srg::Node& node_;
  const int64_t rows_;
  std::string op_;
  std::string overload_;
  std::vector<RowOperand> operands_;
  std::vector<std::optional<RowDimension>> result_rows_;
};

// Returns a refusal with a human-readable reason.
absl::Status MixesRows(absl::string_view why);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ROWS_ROW_CALL_H_
