// A lane is an ordered list of calls. Each thread has its own lane, except that
// PyTorch's autograd threads use the lane of the thread that called backward(),
// because their calls and that thread's form one order.
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

// Returns the number in CallSiteTable of the place where the program made
// the captured call, together with the lane's phase, or 0 if nothing is known.
// A call of a backward pass has the site of its forward call. The kernel calls
// this for each call while call sites or phases are on; with call sites on it
// calls the CallSiteSource.
uint32_t CurrentCallSite();

// Returns ", called at ..., in module ..." for the current call of this thread,
// or an empty string if nothing is known. It works also while call sites are
// off, and calls the CallSiteSource; use it on rare paths only.
std::string DescribeCurrentCallSite();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_LANE_H_
