// The parts of a graph that are programs of their own, as far as values
// flow: a text encoder beside an image encoder, an encoder and the decoder that
// looks at it.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_TOWERS_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_TOWERS_H_

#include <vector>

#include "absl/types/span.h"
#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// A node's tower by its number; -1 for a node that makes no floating-point
// values. Towers end where cross attention looks at another one's values, and
// where a fusion joins them: what it joins into goes on, and otherwise
// something new begins.
std::vector<int> FindTowers(const Frame& frame, const Regions& regions);

// For each slot, what that comes from which another graph left in it:
// unspecified when that is not known.
std::vector<Modality> FindSources(const Frame& frame, const Context& context);

// Adds the fusions that patterns do not show: where values that come from text
// and values that come from images or sound meet. `left` is what FindSources()
// returned. Returns for each node what its values come from: unspecified when
// that is not in sight, fusion when they come from several.
std::vector<Modality> AddJoins(const Frame& frame,
                               absl::Span<const Modality> left,
                               Regions* regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_TOWERS_H_
