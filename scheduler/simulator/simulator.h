// Plays a trace with the code that decides in a cluster: placement by a policy,
// the line of those that find no worker, with what is kept for the first of
// them, and fair queueing at each worker.
//
// The rest is a model: a worker does one job at a time; a job takes what the
// worker's link needs for state that is not there, and then the roofline's
// time, times the trace's noise; state stays until its memory is wanted, what
// was not used for the longest time goes first. A job that finds no worker
// waits in line, and is refused there after a while. Those in line are tried
// again when a job has finished, when a worker is no longer kept for another
// one, and, where not all could be tried, at ticks as a coordinator's.
//
// Tenants may have quotas of memory and of device time, with cohorts in which
// they borrow and lend. Each job takes as much of the memory as its tenant's
// limit says. What lies within a tenant's nominal quota is taken back from
// those that borrow, of which the code that a coordinator chooses with says who
// yields: such a job loses its worker at once, with what it has done there,
// and waits in line to begin again. Where device time has a rate, a job waits
// at its worker to be granted some, as a lease is.
//
// Jobs have classes, and training for which none is declared counts as batch
// work at the workers. A job with a run deadline is one run of its program: of
// those of its tenant with its state, phase and class of operators. A worker
// refuses it as it would a run, by what the program's last ones took there
// (RunTimes, LateBehind), and by the time that its state takes to fetch; the
// deadline counts from when the worker has it. What a refused one asked for is
// there all the same.
//
// Between two of its calls, which all take as long, a job yields as a
// worker's runs do: to whom the queue says, as often and as long as
// PreemptionRule says. Fetching state is one call more. What memory whoever
// goes first would lack is not modelled.
//
// The same trace and options give the same result.
#ifndef SCHEDULER_SIMULATOR_SIMULATOR_H_
#define SCHEDULER_SIMULATOR_SIMULATOR_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/policy.h"
#include "scheduler/simulator/simulated_quotas.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler {

// Of the jobs of one class, as it counts at the workers.
struct ClassResult {
  size_t jobs = 0;
  size_t finished = 0;
  // No worker is fit for them, whatever is waited for, or none was in time.
  size_t unplaced = 0;
  // Their workers refused them: they would have been late.
  size_t late = 0;
  // Of those that finished, from arrival to end.
  double p50_latency_seconds = 0;
  double p99_latency_seconds = 0;
  // How many have a run deadline, and of those how many were done so soon after
  // they had arrived in the cluster.
  size_t deadlines = 0;
  size_t attained = 0;
};

// Of one tenant's jobs, where there are quotas.
struct TenantResult {
  size_t jobs = 0;
  size_t finished = 0;
  // Quota let them have no worker, ever or in time.
  size_t refused_by_quota = 0;
  // How many waited in line for quota, and how long they did together.
  size_t waited_for_quota = 0;
  double quota_wait_seconds = 0;
  // How long jobs waited at their workers to be granted device time.
  double credit_wait_seconds = 0;
  SimulatedQuotas::Loans loans;
  // How often others took a worker back, and what was done there in vain.
  size_t reclaimed = 0;
  double lost_device_seconds = 0;
};

struct SimulationResult {
  size_t finished = 0;
  // All others.
  size_t refused = 0;
  // The most urgent first; those that jobs are of.
  std::map<JobClass, ClassResult, std::greater<>> classes;
  // How often a worker was kept for the first in line.
  size_t reservations = 0;
  // From a job's arrival to its end.
  double mean_latency_seconds = 0;
  double p99_latency_seconds = 0;
  // Of jobs that are of a higher class than batch.
  double interactive_p99_seconds = 0;
  // How often jobs yielded.
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
  // Likewise; empty when nobody has a quota.
  std::vector<TenantResult> tenants;
  size_t decisions = 0;
  // Workers looked at in all decisions.
  size_t looked_at = 0;
  // Where each job went, by index of the worker; -1 for a refused one.
  std::vector<int> workers;
};

struct SimulationOptions {
  PlacementOptions placement;
  // Jobs yield to more urgent ones; otherwise each runs to its end.
  bool preemption = true;
};

// InvalidArgument (BAD_TRACE) for a trace that no cluster could play.
absl::StatusOr<SimulationResult> Simulate(
    const Trace& trace, const Policy& policy,
    const SimulationOptions& options = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SIMULATOR_H_
