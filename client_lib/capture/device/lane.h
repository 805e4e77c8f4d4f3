// A lane is the ordered list of calls of one issuing thread. PyTorch's autograd
// threads have no lanes of their own: they use the lane of the thread that
// called backward(), because their calls and that thread's calls form one
// order.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_LANE_H_
#define CLIENT_LIB_CAPTURE_DEVICE_LANE_H_

#include <cstdint>
#include <string>

#include "djinn/v1/notes.pb.h"

namespace djinn::capture {

// Returns the number of this thread's lane. Lanes are numbered from 1 in the
// order of their first use.
uint32_t CurrentLane();

// Returns the phase that the program set last for this lane.
v1::Phase LanePhase();
// Sets the phase of this lane and returns the previous one.
v1::Phase ExchangeLanePhase(v1::Phase phase);

// Returns the CallSiteTable number for the current call: its call site together
// with the lane's phase. Returns 0 if nothing is known. A call of a backward
// pass has the site of its forward call. The kernel calls this function for
// each call while call sites or phases are on; while call sites are on, the
// function calls the CallSiteSource.
uint32_t CurrentCallSite();

// Returns ", called at ..., in module ..." for the current call of this thread,
// or an empty string if nothing is known. Works even while call sites are off.
// It calls the CallSiteSource, so use it on rare paths only.
std::string DescribeCurrentCallSite();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_LANE_H_
