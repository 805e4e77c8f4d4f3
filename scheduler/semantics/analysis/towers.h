// Finds the parts of a graph that are programs of their own, as far as values
// flow: a text encoder beside an image encoder, or an encoder and the decoder
// that attends to it.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_TOWERS_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_TOWERS_H_

#include <vector>

#include "absl/types/span.h"
#include "scheduler/semantics/analysis/context.h"
#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Returns the number of each node's tower; -1 for a node that makes no
// floating-point values. A tower ends where cross attention reads another
// tower's values, and where a fusion joins values. A tower continues behind a
// fusion only if the fusion scatters rows into its values; otherwise a new
// tower begins there.
std::vector<int> FindTowers(const Frame& frame, const Regions& regions);

// Returns, for each slot, the modality of the value that another graph left in
// it; unspecified when unknown.
std::vector<Modality> FindSources(const Frame& frame, const Context& context);

// Adds the fusions that no pattern shows: nodes where values from text meet
// values from images or sound. `left` is the result of FindSources(). Returns
// the modality from which each node's values come: unspecified when unknown,
// fusion when there are several.
std::vector<Modality> AddJoins(const Frame& frame,
                               absl::Span<const Modality> left,
                               Regions* regions);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_TOWERS_H_
