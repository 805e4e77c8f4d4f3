// Plays a trace with the code that decides in a cluster: placement by a policy,
// the wait queue with the reservation for its first request, and fair queueing
// at each worker.
//
// The rest is a model. A worker executes one job at a time. A job takes the
// time in which the worker's link transfers the missing state, then the
// roofline's time multiplied by the trace's noise. State stays until its memory
// is needed; the least recently used state is dropped first. A job that finds
// no worker waits in the queue, and is refused after a while. Waiting jobs are
// tried again when a job has finished, when a reservation ends, and, where not
// all could be tried, at ticks like a coordinator's.
//
// Tenants may have quotas of memory and of device time, with cohorts in which
// they borrow and lend. Each job takes as much memory as its tenant's limit
// says. A tenant reclaims its nominal quota from borrowers; the coordinator's
// code chooses the victims. A victim loses its worker and its progress at once,
// and waits in the queue to begin again. Where device time has a rate, a job
// waits at its worker for a grant, as a lease does.
//
// Jobs have classes. Training without a declared class counts as batch work at
// the workers. A job with a run deadline is one run of its program; jobs of one
// tenant with equal state, phase and class of operators are runs of one
// program. A worker refuses such a job as it would refuse a run, by the times
// of the program's last runs there (RunTimes, LateBehind) and by the time that
// its state takes to fetch. The deadline counts from the moment when the worker
// gets the job. The state of a refused job still moves to the worker.
//
// All calls of a job take equally long. Between two calls a job yields as a
// worker's runs do: to the session that the queue chooses, as often and as long
// as PreemptionRule allows. Fetching state counts as one more call. The model
// ignores that a preempting job may lack memory.
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

// Results of the jobs of one class, as classified at the workers.
struct ClassResult {
  size_t jobs = 0;
  size_t finished = 0;
  // Jobs for which no worker is suitable, or none was available in time.
  size_t unplaced = 0;
  // Jobs that their workers refused because they would have been late.
  size_t late = 0;
  // Latencies of the finished jobs, from arrival to end.
  double p50_latency_seconds = 0;
  double p99_latency_seconds = 0;
  // Number of jobs with a run deadline, and how many of them ended within it,
  // counted from their arrival in the cluster.
  size_t deadlines = 0;
  size_t attained = 0;
};

// Results of one tenant's jobs, where there are quotas.
struct TenantResult {
  size_t jobs = 0;
  size_t finished = 0;
  // Jobs that quota gave no worker, either ever or in time.
  size_t refused_by_quota = 0;
  // Number of jobs that waited for quota, and the sum of their waits.
  size_t waited_for_quota = 0;
  double quota_wait_seconds = 0;
  // Time that jobs waited at their workers for a grant of device time.
  double credit_wait_seconds = 0;
  SimulatedQuotas::Loans loans;
  // Number of reclaims of its workers by other tenants, and the device time
  // that was lost with them.
  size_t reclaimed = 0;
  double lost_device_seconds = 0;
};

struct SimulationResult {
  size_t finished = 0;
  // Number of all other jobs.
  size_t refused = 0;
  // Highest class first; only classes that have jobs.
  std::map<JobClass, ClassResult, std::greater<>> classes;
  // Number of reservations for the first job of the wait queue.
  size_t reservations = 0;
  // Latency from a job's arrival to its end, over finished jobs.
  double mean_latency_seconds = 0;
  double p99_latency_seconds = 0;
  // Latency of the jobs of a higher class than batch.
  double interactive_p99_seconds = 0;
  // Number of times that a job yielded.
  uint64_t preemptions = 0;
  // Time from the first arrival to the last end.
  double makespan_seconds = 0;
  // Device time of all workers. The less the same jobs took, the more jobs the
  // cluster could have executed.
  double busy_seconds = 0;
  // Price of the device time that jobs used.
  double cost = 0;
  // Standard deviation of the workers' busy times divided by their mean; 0 when
  // all are equal.
  double imbalance = 0;
  // Bytes of state that were moved because the job's worker did not hold them.
  uint64_t moved_bytes = 0;
  // Device time by tenant of the trace.
  std::vector<double> device_seconds;
  // Results by tenant of the trace; empty when no tenant has a quota.
  std::vector<TenantResult> tenants;
  size_t decisions = 0;
  // Number of workers looked at in all decisions.
  size_t looked_at = 0;
  // Index of the worker that each job got; -1 for a refused job.
  std::vector<int> workers;
};

struct SimulationOptions {
  PlacementOptions placement;
  // True when jobs yield to other jobs; otherwise each runs to its end.
  bool preemption = true;
};

// Returns InvalidArgument (BAD_TRACE) for a trace that no cluster could play.
absl::StatusOr<SimulationResult> Simulate(
    const Trace& trace, const Policy& policy,
    const SimulationOptions& options = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SIMULATOR_H_
