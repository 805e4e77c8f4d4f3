// Summarizes the result of a simulated trace from the ends of its jobs.
#ifndef SCHEDULER_SIMULATOR_SUMMARY_H_
#define SCHEDULER_SIMULATOR_SUMMARY_H_

#include <vector>

#include "absl/types/span.h"
#include "scheduler/simulator/simulator.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler {

// How a job ended.
struct JobEnd {
  enum class Outcome { kUnplaced, kLate, kFinished };
  Outcome outcome = Outcome::kUnplaced;
  // Time of its end, if it finished.
  double seconds = 0;
};

// Sets the fields of the result that follow from the ends of the trace's jobs,
// in their order, and from the busy time of each worker.
void SumUp(const Trace& trace, absl::Span<const JobEnd> ends,
           absl::Span<const double> busy_seconds, SimulationResult* result);
// Counts the jobs of each tenant, and those that finished.
void CountTenants(const Trace& trace, absl::Span<const JobEnd> ends,
                  std::vector<TenantResult>* tenants);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SUMMARY_H_
