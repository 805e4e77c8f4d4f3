// Finds the parts of attention with which a piece of a program begins or ends,
// and whose softmax is in another piece.
//
// AttentionPattern() (attention.cc) finds whole attention first, and uses the
// questions below about single nodes. Lives as long as one match; holds no
// state of its own.
#ifndef SCHEDULER_SEMANTICS_PATTERNS_ATTENTION_PIECES_H_
#define SCHEDULER_SEMANTICS_PATTERNS_ATTENTION_PIECES_H_

#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

class AttentionPieces {
 public:
  AttentionPieces(const Frame& frame, Regions* regions)
      : frame_(frame), regions_(regions) {}

  // Adds a projection of a value from before the run, followed by a sum and a
  // norm, and then by an MLP.
  void AddOutputs();
  // Adds several projections of one value into heads.
  void AddProjections();
  // Adds a projection of a whole norm output with which the piece ends, and
  // which keeps its width or makes queries, keys and values at once. An MLP
  // widens by another factor. A projection to scores has as many columns as
  // there are classes or tokens.
  void AddLastProjections();
  // Adds the distances between keys and queries. The table that turns them into
  // a bias, or the products, are in the next piece.
  void AddDistances();

  // Returns whether the node is elementwise and in no region.
  bool Passes(int node) const;
  bool IsNorm(int node) const;
  bool HasActivation(int node) const;
  // Returns whether the node looks up rows, with one number per head, by
  // integers.
  bool IsTableLookUp(int node) const;
  // Returns whether the node may compute distances between positions.
  bool MeasuresDistance(int node) const;
  // Returns whether the node compares positions, or keeps a triangle of them.
  bool Compares(int node) const;

 private:
  bool JoinsHeads(int node) const;
  bool IsDistance(int node) const;
  bool IsOnlyCompared(int node) const;
  void AddScale(int projection, Region* region) const;
  bool EndsNorm(int node) const;

  const Frame& frame_;
  Regions* const regions_;
};

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_PATTERNS_ATTENTION_PIECES_H_
