// Declares the known patterns, each of which has a file of its own.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_PATTERNS_H_
#define SCHEDULER_SEMANTICS_PATTERNS_PATTERNS_H_

#include <vector>

#include "absl/types/span.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// "optimizer": a step, including the creation of its state.
const Pattern& OptimizerPattern();
// "loss": the calls from the last scores to the value at which a backward pass
// begins.
const Pattern& LossPattern();
// "backward": the calls that autograd makes.
const Pattern& BackwardPattern();
// "kv_cache": keys and values of earlier tokens are joined with new ones.
// Traits are "cat", "index_copy" and "slice_write"; "empty" when there were no
// earlier tokens.
const Pattern& KvCachePattern();
// "attention": the softmax of products, with the projections around it. Traits
// are "fused" or "explicit", "causal", "masked", "grouped_query", "cross",
// "cached"; "one_query" when there is one query per row.
const Pattern& AttentionPattern();
// "moe": a router and the experts that it chooses.
const Pattern& MoePattern();
// Returns whether this graph routes rows to experts, or adds their results
// back.
bool HasExperts(const Regions& regions);
// Adds pieces that belong to an expert only in a program that has experts
// elsewhere: MLPs of rows gathered before, and choices of rows.
void FindPiecesOfExperts(const Frame& frame, Regions* regions);
// "recurrent": cells over time, as one call or as their gates.
const Pattern& RecurrentPattern();
// "embedding": look-ups in a table, image patches, positions.
const Pattern& EmbeddingPattern();
// "conv": convolutions with their normalization, activation and pooling.
const Pattern& ConvolutionPattern();
// "norm": a normalization in one call.
const Pattern& NormPattern();
// "norm": a normalization in several calls. The heads of an attention may pass
// through one.
const Pattern& SpelledNormPattern();
// "fusion": values from different sources become one.
const Pattern& FusionPattern();
// Returns the nodes that lead to a projection's rows from the previous part of
// the program: projections and the nodes between them, nearest first.
std::vector<int> ProjectorBefore(const Frame& frame, const Regions& regions,
                                 int projection);
// Returns the projection whose rows a node makes, moves, pools or normalizes;
// -1 when there is none.
int ProjectionBehind(const Frame& frame, const Regions& regions, int node);
// Returns whether the node divides each row by the row's length.
bool MakesUnitRows(const Frame& frame, int node);
// Returns whether the node makes such rows, or such rows times one number.
bool MakesScaledUnitRows(const Frame& frame, int node);
// Returns the nodes that lead to rows of length one: their scaling and their
// projection, nearest first.
std::vector<int> ComparedBefore(const Frame& frame, const Regions& regions,
                                int node);
// Adds a product as the scores of one side's rows against the other's.
void AddComparison(const Frame& frame, int node, Regions* regions);
// "mlp": projections with an activation between them.
const Pattern& MlpPattern();

// Returns all patterns in the order in which they take nodes.
absl::Span<const Pattern* const> AllPatterns();

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_PATTERNS_H_
