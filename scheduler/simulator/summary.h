// What came of a simulated trace, from how its jobs ended.
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
  // When, if it has finished.
  double seconds = 0;
};

// Sets what follows from the ends of the trace's jobs, in their order, and from
// how long each worker was busy.
void SumUp(const Trace& trace, absl::Span<const JobEnd> ends,
           absl::Span<const double> busy_seconds, SimulationResult* result);
// Counts the jobs of each tenant.
void CountTenants(const Trace& trace, absl::Span<const JobEnd> ends,
                  std::vector<TenantResult>* tenants);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SUMMARY_H_
