// Work whose phases count by the time that they took.
//
// Structures say what one run of each is. A program reads one prompt and then
// makes hundreds of tokens by the same structure, or looks at one image and
// writes about it: what bounds a device in the phase in which the program
// spends its time is what should choose the device, arithmetic or memory.
#ifndef SCHEDULER_PLACEMENT_PHASE_WEIGHTS_H_
#define SCHEDULER_PLACEMENT_PHASE_WEIGHTS_H_

#include <array>

#include "absl/strings/string_view.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/meaning.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::scheduler {

// By phase.
using PhaseSeconds = std::array<double, semantics::kPhaseCount>;

// `work` is one run of each structure, and its phases took so long on a device
// of that kind and speed. The result is predicted to take there as long as
// `work` is, in all, and in each phase a part of that as large as it had of the
// measured time. A phase took one run at least; so did what is of no phase,
// whatever was measured: what runs before its phase is known is measured as
// that. `work` itself where nothing was measured, or the speed is not known.
Work WeighByTime(const Work& work, const PhaseSeconds& measured,
                 const semantics::DeviceSpeed& speed, absl::string_view device,
                 const semantics::CostFactors& factors);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_PHASE_WEIGHTS_H_
