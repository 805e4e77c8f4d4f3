// Summarizes a whole graph from the phases of its nodes.
#ifndef SCHEDULER_SEMANTICS_ANALYSIS_CONCLUSION_H_
#define SCHEDULER_SEMANTICS_ANALYSIS_CONCLUSION_H_

#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/patterns/frame.h"

namespace djinn::semantics {

// Computes stages, phase, modality and task type again from the nodes and slots
// of `meaning`, which describes the frame's graph.
void Conclude(const Frame& frame, Meaning* meaning);

}  // namespace djinn::semantics

#endif  // SCHEDULER_SEMANTICS_ANALYSIS_CONCLUSION_H_
