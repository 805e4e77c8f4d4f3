// Which lane the current thread issues into: one per thread, except that
// PyTorch's autograd threads issue into the lane of the thread that called
// backward(), because together they are one order of calls.
#ifndef CLIENT_LIB_CAPTURE_LANE_H_
#define CLIENT_LIB_CAPTURE_LANE_H_

#include <cstdint>

namespace djinn::capture {

// Numbered from 1 in order of first use.
uint32_t CurrentLane();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_LANE_H_
