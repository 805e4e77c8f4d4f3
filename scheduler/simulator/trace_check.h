// What no cluster could play.
#ifndef SCHEDULER_SIMULATOR_TRACE_CHECK_H_
#define SCHEDULER_SIMULATOR_TRACE_CHECK_H_

#include "absl/status/status.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler {

// InvalidArgument (BAD_TRACE) says what is wrong first.
absl::Status CheckTrace(const Trace& trace);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_TRACE_CHECK_H_
