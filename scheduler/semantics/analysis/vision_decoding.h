// Finds where a graph makes images of smaller ones.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_VISION_DECODING_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_VISION_DECODING_H_

#include <vector>

#include "scheduler/semantics/patterns/pattern.h"

namespace djinn::semantics {

// Returns by node whether it comes after the first enlarged image or leads to
// it. `towers` is the result of FindTowers().
std::vector<bool> FindVisionDecoding(const Frame& frame, const Regions& regions,
                                     const std::vector<int>& towers);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_VISION_DECODING_H_
