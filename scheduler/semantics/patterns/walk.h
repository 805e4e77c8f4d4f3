// Answers questions about nodes and their neighbours that several patterns ask.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_WALK_H_
#define SCHEDULER_SEMANTICS_PATTERNS_WALK_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "scheduler/semantics/patterns/frame.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

using NodePredicate = std::function<bool(int node)>;

// Returns whether each element of the output depends on few elements: layout,
// pointwise, dropout.
bool IsElementwise(const Frame& frame, int node);
// Returns whether the node indexes rows of a floating-point table from before
// the run by integers.
bool IsTableIndex(const Frame& frame, int node);
// Returns whether the node looks up rows of a table for several tokens of each
// row of a batch.
bool IsTokenLookUp(const Frame& frame, int node);
// Returns whether the node multiplies its first operand by one number.
bool IsScaling(const Frame& frame, int node);
// Returns whether the node keeps numbers within bounds: the hyperbolic tangent
// of a fraction of them, times a number.
bool IsSoftCap(const Frame& frame, int node);
// Returns whether the k-th operand has one number per column and exists before
// the run, or is such an operand plus a number.
bool IsColumnWeight(const Frame& frame, int node, int k);
// Returns whether the node adds one number to a vector that exists before the
// run.
bool RaisesWeight(const Frame& frame, int node);

// Returns the nodes upstream of `node`, nearest first, without `node` itself.
// Goes on behind a node only if `through` accepts it, and returns only such
// nodes, at most `limit`. Calls `through` for every node that it reaches.
std::vector<int> Upstream(const Frame& frame, int node,
                          const NodePredicate& through, int limit = 64);
std::vector<int> Downstream(const Frame& frame, int node,
                            const NodePredicate& through, int limit = 64);
// Returns the nearest node upstream that `wanted` accepts, behind nodes that
// `through` accepts; -1 when there is none.
int FindUpstream(const Frame& frame, int node, const NodePredicate& through,
                 const NodePredicate& wanted, int limit = 64);
int FindDownstream(const Frame& frame, int node, const NodePredicate& through,
                   const NodePredicate& wanted, int limit = 64);

// Returns the integer, or the only integer of a list, at an argument of the
// schema.
std::optional<int64_t> IntegerArgument(const Frame& frame, int node, int index);

// Returns the free nodes that apply dropout to the output of `node`: one call
// that draws, or, as other front ends call it, the product with a mask and the
// nodes that draw it.
std::vector<int> DropoutBehind(const Frame& frame, const Regions& regions,
                               int node);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_WALK_H_
