// Which lane the current thread issues into: one per thread, except that
// PyTorch's autograd threads issue into the lane of the thread that called
// backward(), because together they are one order of calls.
#ifndef CLIENT_LIB_CAPTURE_DEVICE_LANE_H_
#define CLIENT_LIB_CAPTURE_DEVICE_LANE_H_

#include <cstdint>

#include "djinn/v1/notes.pb.h"

namespace djinn::capture {

// Numbered from 1 in order of first use.
uint32_t CurrentLane();

// What the lane's calls are for, as the program said last.
v1::Phase LanePhase();
// Returns what it was.
v1::Phase ExchangeLanePhase(v1::Phase phase);

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_DEVICE_LANE_H_
