// Finds pieces of an embedding that other graphs began: rows that are moved and
// joined before the model reads them, and the choice of positions in an image.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_EMBEDDING_PIECES_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_EMBEDDING_PIECES_H_

#include <vector>

#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Returns, for each slot, whether an embedding in another graph left its value.
std::vector<bool> FindEmbedded(const Frame& frame, const Context& context);

// Adds nodes that only move, pick, join or add rows of embeddings. The rows
// come from this graph or, according to `embedded`, from others. One vector per
// row of the batch may precede them.
void AddEmbeddingPieces(const Frame& frame, const std::vector<bool>& embedded,
                        Regions* regions);

// Adds the choice of positions, which are pairs of integers. Only valid in a
// program that cuts images into patches: other programs use pairs for other
// purposes.
void AddPlaces(const Frame& frame, Regions* regions);

// Returns whether this graph cuts an image into patches.
bool HasPatches(const Regions& regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_EMBEDDING_PIECES_H_
