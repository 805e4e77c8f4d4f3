// Weights a session's work by the time that its phases took.
//
// A graph describes one run. A program reads one prompt and then generates
// hundreds of tokens with the same graph. The phase in which the program
// spends its time should choose the device, by arithmetic or by memory
// bandwidth.
#ifndef SCHEDULER_PLACEMENT_PHASE_WEIGHTS_H_
#define SCHEDULER_PLACEMENT_PHASE_WEIGHTS_H_

#include <array>

#include "absl/strings/string_view.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::scheduler {

// Seconds by phase.
using PhaseSeconds = std::array<double, semantics::kPhaseCount>;

// Returns `work`, which is one run of each graph, scaled by phase so that
// its predicted total time stays and each phase has its share of the `measured`
// time on a device of this kind and speed. Each phase counts as one run at
// least. Work of unknown phase always counts as one run, because runs are
// measured as unknown until their phase is found. Returns `work` unchanged when
// nothing was measured or the speed is unknown.
Work WeighByTime(const Work& work, const PhaseSeconds& measured,
                 const semantics::DeviceSpeed& speed, absl::string_view device,
                 const semantics::CostFactors& factors);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_PHASE_WEIGHTS_H_
