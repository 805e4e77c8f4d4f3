// Moves the calling thread off the processor it is on.
#ifndef COMMON_LEAVE_PROCESSOR_H_
#define COMMON_LEAVE_PROCESSOR_H_

namespace djinn {

// To any other that it may use, by narrowing its affinity and widening it
// again; returns when it has its turn there. Without effect where there is
// none. Takes some ten microseconds, more where the other processor is busy.
void LeaveProcessor();

}  // namespace djinn

#endif  // COMMON_LEAVE_PROCESSOR_H_
