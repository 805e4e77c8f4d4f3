// Plays a trace with the code that decides in a cluster: placement by a policy,
// fair queueing at each worker.
//
// The rest is a model: a worker does one job at a time; a job takes what the
// worker's link needs for state that is not there, and then the roofline's
// time, times the trace's noise; state stays until its memory is wanted, what
// was not used for the longest time goes first. A job that finds no worker
// waits, and is tried again, in turn, whenever one has finished.
//
// Training counts as batch work, all else as interactive. Between two of a
// job's calls, which all take as long, it gives way as a worker's runs do: to
// whom the queue says, as often and as long as PreemptionRule says. Fetching
// state is one call more. What memory whoever goes first would lack is not
// modelled.
//
// The same trace and options give the same result.
#ifndef SCHEDULER_SIMULATOR_SIMULATOR_H_
#define SCHEDULER_SIMULATOR_SIMULATOR_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/policy.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler {

struct SimulationResult {
  size_t finished = 0;
  // No worker is fit for them, whatever is waited for.
  size_t refused = 0;
  // From a job's arrival to its end.
  double mean_latency_seconds = 0;
  double p99_latency_seconds = 0;
  // Of jobs that are no training.
  double interactive_p99_seconds = 0;
  // How often jobs gave way.
  uint64_t preemptions = 0;
  // From the first arrival to the last end.
  double makespan_seconds = 0;
  // Of all devices: the less of it the jobs took, the more of them there could
  // have been.
  double busy_seconds = 0;
  // Money for the time that jobs kept devices.
  double cost = 0;
  // Standard deviation of workers' busy times over their mean: 0 when all did
  // as much.
  double imbalance = 0;
  // Moved because it was not where the job went.
  uint64_t moved_bytes = 0;
  // By tenant of the trace.
  std::vector<double> device_seconds;
  size_t decisions = 0;
  // Workers looked at in all decisions.
  size_t looked_at = 0;
  // Where each job went, by index of the worker; -1 for a refused one.
  std::vector<int> workers;
};

struct SimulationOptions {
  PlacementOptions placement;
  // Jobs give way to more urgent ones; otherwise each runs to its end.
  bool preemption = true;
};

// InvalidArgument (BAD_TRACE) for a trace that no cluster could play.
absl::StatusOr<SimulationResult> Simulate(
    const Trace& trace, const Policy& policy,
    const SimulationOptions& options = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SIMULATOR_H_
