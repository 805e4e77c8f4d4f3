// What the phases of the nodes say about the whole graph.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_CONCLUSION_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_CONCLUSION_H_

#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::semantics {

// Finds stages, phase, modality and task type anew from the nodes and slots of
// `meaning`, which is about the frame's graph.
void Conclude(const Frame& frame, Meaning* meaning);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_CONCLUSION_H_
