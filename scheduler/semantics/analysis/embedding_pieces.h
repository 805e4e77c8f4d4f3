// What a piece shows of an embedding that other pieces began: rows that are
// moved and joined before the model reads them, and the choice of an image's
// places.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_EMBEDDING_PIECES_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_EMBEDDING_PIECES_H_

#include <vector>

#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// For each slot, whether an embedding in another graph left what comes in
// it.
std::vector<bool> FindEmbedded(const Frame& frame, const Context& context);

// Adds what moves, picks, joins or adds up nothing but rows of embeddings, of
// this graph or, by `embedded`, of others. A vector may be put before them.
void AddEmbeddingPieces(const Frame& frame, const std::vector<bool>& embedded,
                        Regions* regions);

// Adds the choice of places, which are pairs of whole numbers, in a program
// that cuts images into patches: elsewhere others work with pairs.
void AddPlaces(const Frame& frame, Regions* regions);

// Whether an image is cut into patches here.
bool HasPatches(const Regions& regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_EMBEDDING_PIECES_H_
