// The patterns that are known, each in a file of its own.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_PATTERNS_H_
#define SCHEDULER_SEMANTICS_PATTERNS_PATTERNS_H_

#include <vector>

#include "absl/types/span.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// "optimizer": a step, with the making of its state.
const Pattern& OptimizerPattern();
// "loss": what a backward pass begins with, from the last scores on.
const Pattern& LossPattern();
// "backward": what autograd calls.
const Pattern& BackwardPattern();
// "kv_cache": keys and values of earlier tokens are joined with new ones.
// Traits "cat", "index_copy", "slice_write"; "empty" when there were none
// before.
const Pattern& KvCachePattern();
// "attention": softmax of products, with the projections around it. Traits
// "fused" or "explicit", "causal", "masked", "grouped_query", "cross",
// "cached"; "one_query" when there is one query a row.
const Pattern& AttentionPattern();
// "moe": a router and the experts that it chooses.
const Pattern& MoePattern();
// Whether rows are routed to experts, or their results added back, here.
bool HasExperts(const Regions& regions);
// Adds what is an expert's only in a program that has them elsewhere: MLPs
// of rows that were gathered before, and choices of rows.
void FindPiecesOfExperts(const Frame& frame, Regions* regions);
// "recurrent": cells over time, whole or as their gates.
const Pattern& RecurrentPattern();
// "embedding": look-ups in a table, image patches, positions.
const Pattern& EmbeddingPattern();
// "conv": convolutions with their normalization, activation and pooling.
const Pattern& ConvolutionPattern();
// "norm": in one call.
const Pattern& NormPattern();
// "norm", too: in several calls. The heads of an attention may pass one.
const Pattern& SpelledNormPattern();
// "fusion": what comes from different sources becomes one.
const Pattern& FusionPattern();
// What leads to a projection's rows from the part before it on: projections and
// what is between them, nearest first.
std::vector<int> ProjectorBefore(const Frame& frame, const Regions& regions,
                                 int projection);
// The projection whose rows a node makes, or moves, pools or normalizes behind
// it; -1 when there is none.
int ProjectionBehind(const Frame& frame, const Regions& regions, int node);
// Whether the node makes each row its share of its own length.
bool MakesUnitRows(const Frame& frame, int node);
// Likewise, or makes such rows times one number.
bool MakesScaledUnitRows(const Frame& frame, int node);
// What leads to rows of length one: their scaling and projection, nearest
// first.
std::vector<int> ComparedBefore(const Frame& frame, const Regions& regions,
                                int node);
// Adds a product as the scores of one side's rows against the other's.
void AddComparison(const Frame& frame, int node, Regions* regions);
// "mlp": projections with an activation between them.
const Pattern& MlpPattern();

// All of them, in the order in which they take nodes.
absl::Span<const Pattern* const> AllPatterns();

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_PATTERNS_H_
