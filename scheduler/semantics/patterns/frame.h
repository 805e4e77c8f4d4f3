// Prepares a graph for analysis: the values that every call reads and makes. A
// value is the content of a storage between two writes; views of it are the
// same value.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_FRAME_H_
#define SCHEDULER_SEMANTICS_PATTERNS_FRAME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "scheduler/semantics/patterns/operators.h"

namespace djinn::semantics {

// Immutable. Nodes and values are numbered from 0; -1 means none.
class Frame {
 public:
  struct Operand {
    const srg::TensorView* view;
    int value;     // before the call
    int argument;  // of the schema
    bool written;
  };
  struct Output {
    const srg::TensorView* view;  // null when the run decides
    int value;
  };
  struct Value {
    uint32_t slot;
    int producer = -1;  // node; -1 if it exists before the run
    int previous = -1;  // value that a write replaced
    const srg::TensorView* view = nullptr;  // as made, or as first read
    std::vector<int> readers;               // nodes, ascending
  };

  // `graph` was accepted by srg::Validate() and must outlive the frame.
  explicit Frame(const srg::Graph& graph);

  const srg::Graph& graph() const { return graph_; }
  int node_count() const { return static_cast<int>(nodes_.size()); }
  // Returns the operator's name without overload, such as "addmm", and without
  // "aten::" if it is PyTorch's own.
  absl::string_view op(int node) const { return nodes_[node].op; }
  OpClass op_class(int node) const { return nodes_[node].op_class; }
  // Returns the tensors among the arguments, in order, with lists flattened.
  absl::Span<const Operand> operands(int node) const {
    return nodes_[node].operands;
  }
  // Returns the results, followed by the written operands.
  absl::Span<const Output> outputs(int node) const {
    return nodes_[node].outputs;
  }
  const srg::Argument* argument(int node, int index) const;
  const Value& value(int value) const { return values_[value]; }
  int value_count() const { return static_cast<int>(values_.size()); }

  // Returns the node that made the node's k-th operand; -1 when the operand
  // exists before the run, or when there is no such operand.
  int Producer(int node, int k) const;
  // Returns the nodes that made what this one reads, ascending and without
  // repetition.
  std::vector<int> Producers(int node) const;
  // Returns the nodes that read what this one makes, ascending and without
  // repetition.
  std::vector<int> Consumers(int node) const;
  // Returns the sizes of the k-th operand; empty when there is none.
  absl::Span<const int64_t> Sizes(int node, int k) const;
  // Returns the sizes of the first output; empty when there is none or the run
  // decides them.
  absl::Span<const int64_t> OutputSizes(int node) const;
  // Returns whether the k-th operand exists before the run.
  bool IsBound(int node, int k) const;
  // Returns whether a call takes the value's storage as a weight, a bias, a
  // table or a statistic, or an optimizer writes it.
  bool IsParameter(int value) const {
    return parameter_slots_[values_[value].slot];
  }
  // Returns whether the k-th operand is transposed relative to the value that
  // was made. A matrix that was made with its columns side by side is not. The
  // layout in which an operand from before the run was made is unknown: it
  // counts as transposed if its view is.
  bool IsTurned(int node, int k) const;
  // Returns whether the operand or the value exists before the run and is no
  // parameter.
  bool IsFromElsewhere(const Operand& operand) const {
    return IsFromElsewhere(operand.value);
  }
  bool IsFromElsewhere(int value) const {
    return values_[value].producer < 0 && !IsParameter(value);
  }

 private:
  struct Node {
    std::string op;
    OpClass op_class = OpClass::kOther;
    std::vector<Operand> operands;
    std::vector<Output> outputs;
  };

  void FindParameters();

  const srg::Graph& graph_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<bool> parameter_slots_;
};

// Returns whether the view is a matrix whose columns lie side by side in
// memory.
bool IsTransposed(const srg::TensorView& view);
// Returns the number of elements of a view; 0 for null.
int64_t Elements(const srg::TensorView* view);
// Returns the number of bytes of its elements.
int64_t Bytes(const srg::TensorView* view);
bool IsFloating(srg::DataType type);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_FRAME_H_
