// What several patterns ask about nodes and their neighbours.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_WALK_H_
#define SCHEDULER_SEMANTICS_PATTERNS_WALK_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::semantics {

using NodePredicate = std::function<bool(int node)>;

// A matrix product whose right operand is a weight: a Linear module's call.
bool IsProjection(const Frame& frame, int node);
// A matrix product of batches: neither operand is a weight.
bool IsBatchedProduct(const Frame& frame, int node);
// Makes new elements, each of few: layout, pointwise, dropout.
bool IsElementwise(const Frame& frame, int node);
// Rows of a table of numbers that was there before, by whole numbers.
bool IsTableIndex(const Frame& frame, int node);
// Rows of a table for several tokens of each of a batch.
bool IsTokenLookUp(const Frame& frame, int node);
// Multiplies the first operand by one number.
bool IsScaling(const Frame& frame, int node);
// Keeps numbers within bounds: the hyperbolic tangent of a share of them, times
// a number.
bool IsSoftCap(const Frame& frame, int node);
// Whether the k-th operand is a number for each column that was there before,
// or one that has a number added.
bool IsColumnWeight(const Frame& frame, int node, int k);
// Adds one number to a row of them that was there before.
bool RaisesWeight(const Frame& frame, int node);

// The nodes upstream of `node`, nearest first, without it: of each only what
// lies behind nodes that `through` accepts, at most `limit` of them. `through`
// is asked for every node reached; those it refuses are not in the answer.
std::vector<int> Upstream(const Frame& frame, int node,
                          const NodePredicate& through, int limit = 64);
std::vector<int> Downstream(const Frame& frame, int node,
                            const NodePredicate& through, int limit = 64);
// The nearest node upstream that `wanted` accepts, behind nodes that `through`
// accepts; -1 when there is none.
int FindUpstream(const Frame& frame, int node, const NodePredicate& through,
                 const NodePredicate& wanted, int limit = 64);
int FindDownstream(const Frame& frame, int node, const NodePredicate& through,
                   const NodePredicate& wanted, int limit = 64);

// The integer, or the only one of a list, at an argument of the schema.
std::optional<int64_t> IntegerArgument(const Frame& frame, int node, int index);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_WALK_H_
