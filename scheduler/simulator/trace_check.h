// Rejects traces that no cluster could play.
#ifndef SCHEDULER_SIMULATOR_TRACE_CHECK_H_
#define SCHEDULER_SIMULATOR_TRACE_CHECK_H_

#include "absl/status/status.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler {

// Returns InvalidArgument (BAD_TRACE) with the first error.
absl::Status CheckTrace(const Trace& trace);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_TRACE_CHECK_H_
