// Plays a trace; simulator.h describes the rules.
//
// The state is one struct, and there is a file for each thing that happens to a
// job: simulation_line.cc gives the job a worker, simulation_reclaim.cc applies
// memory quotas to that choice, simulation_credit.cc grants the job device time
// at the worker, and simulation_turns.cc executes it. Future events are in a
// queue ordered by time. A job is named by its index in the trace, and so is a
// worker.
#ifndef SCHEDULER_SIMULATOR_SIMULATION_H_
#define SCHEDULER_SIMULATOR_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "scheduler/fairness/fair_queue.h"
#include "scheduler/fairness/preemption_rule.h"
#include "scheduler/fairness/wait_queue.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/reservation.h"
#include "scheduler/quota/victims.h"
#include "scheduler/simulator/simulated_quotas.h"
#include "scheduler/simulator/simulated_worker.h"
#include "scheduler/simulator/simulator.h"
#include "scheduler/simulator/summary.h"
#include "scheduler/simulator/trace.h"

namespace djinn::scheduler::simulation {

using Ticket = WaitQueue::Ticket;

// The state of a job while it is played.
struct Run {
  int worker = -1;
  // Time at which it asked for a worker.
  double asked = 0;
  // Its ticket in the wait queue; 0 when it is not there.
  Ticket ticket = 0;
  // True when it lost a worker to another tenant and precedes other jobs of
  // its own tenant; and how often it did so.
  bool returns = false;
  int reclaims = 0;
  // Time before which nothing is reclaimed for it.
  double next_reclaim = 0;
  // Time since which it waits for quota, if it does; and whether it ever
  // waited.
  std::optional<double> quota_asked;
  bool waited_for_quota = false;
  // True when the last decision found no worker with enough memory.
  bool waits_for_room = false;
  double factor = 1;
  double predicted = 0;
  double transfer = 0;
  // Time at which it got its worker.
  double placed = 0;
  // Where device time has a rate: the seconds that it was granted, the
  // seconds of its use that were counted, and the time since which it waits
  // for a grant.
  double granted = 0;
  double billed = 0;
  double credit_asked = 0;
  // True once its turn has begun.
  bool begun = false;
  // Length of its turn without the preempting turns; the part that was done
  // when it last resumed; the time at which it last resumed; and the time at
  // which it last yielded.
  double length = 0;
  double done = 0;
  double resumed = 0;
  double yielded_for = 0;
  JobEnd end;
  // Its step at its worker.
  FairQueue::Work work;
  PreemptionRule rule;
  // Grows whenever it resumes or yields, or loses its worker; earlier events
  // are then stale.
  uint64_t stretch = 0;
  bool look_planned = false;
};
struct Event {
  enum class Kind {
    // For the job whose turn runs: its turn ends, or it reaches an edge
    // between two calls.
    kEnd,
    kEdge,
    // For a waiting job: it has waited for the queue's patience, or for as
    // long as a request may wait.
    kImpatient,
    kExpired,
    // For no job: tries waiting jobs that have not been tried.
    kTick,
    // For no job: shares the rates of device time again.
    kRates,
    // For no job: a waiting job may reclaim what it could not before.
    kReclaim,
  };
  double seconds = 0;
  uint64_t order = 0;
  Kind kind = Kind::kEnd;
  size_t job = 0;
  uint64_t stretch = 0;

  bool operator>(const Event& other) const {
    return std::tie(seconds, order) > std::tie(other.seconds, other.order);
  }
};

// The jobs that wait for a worker.
struct Line {
  explicit Line(absl::Duration patience) : reservation(patience) {}

  WaitQueue queue;
  absl::flat_hash_map<Ticket, size_t> jobs;
  Reservation reservation;
  // True when capacity has become free since the last try.
  bool freed = false;
  // Number of waiting jobs that have not been tried since then.
  size_t untried = 0;
  bool tick_planned = false;
};

struct State {
  // The trace must have passed CheckTrace(). All arguments must outlive this
  // object.
  State(const Trace& trace, const Policy& policy,
        const SimulationOptions& options);

  const Trace& trace;
  const Policy& policy;
  const SimulationOptions options;
  Fleet fleet;
  semantics::CostFactors factors;
  Randomness draws;
  Randomness noise;
  std::vector<std::unique_ptr<SimulatedWorker>> workers;
  absl::flat_hash_map<std::string, size_t> index;
  absl::flat_hash_map<std::pair<size_t, std::string>, StateKey> keys;
  absl::flat_hash_map<
      std::tuple<size_t, std::string, semantics::Phase, semantics::OpClass>,
      uint64_t>
      programs;
  std::vector<Run> runs;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  uint64_t events_planned = 0;
  Line line;
  SimulatedQuotas quotas;
  absl::flat_hash_map<std::string, size_t> tenant_index;
  // Jobs that have a worker, by tenant.
  std::vector<std::set<size_t>> placed;
  // The placed jobs that wait for a grant of device time, in order.
  std::vector<size_t> without_credit;
  bool rates_planned = false;
  bool reclaim_planned = false;
  std::vector<TenantResult> tenants;
  double now = 0;
  SimulationResult result;
};

// Plays the trace. Call it once.
SimulationResult Play(State& s);

inline absl::Duration Now(const State& s) { return absl::Seconds(s.now); }
inline const SimulatedTenant& TenantOf(const State& s, size_t job) {
  return s.trace.tenants[s.trace.jobs[job].tenant];
}
inline SimulatedWorker& WorkerOf(State& s, size_t job) {
  return *s.workers[static_cast<size_t>(s.runs[job].worker)];
}
void Plan(State& s, double seconds, Event::Kind kind, size_t job);

// --- Getting a worker (simulation_line.cc) ---
StateKey KeyOf(State& s, const SimulatedJob& job);
// Returns the job's request without its work.
Request RequestOf(State& s, size_t job);
void Arrive(State& s, size_t job);
// Tries to give the job a worker. Returns true when no further try is needed;
// otherwise the job is in the wait queue.
bool TryPlace(State& s, size_t job);
// Adds the job to the wait queue if it is not there.
void JoinLine(State& s, size_t job);
void LeaveLine(State& s, size_t job);
// NoteFreed() makes the next tick try waiting jobs, because capacity became
// free. Retry() tries them now.
void NoteFreed(State& s);
void Retry(State& s);
void RetrySome(State& s);
void ReviewReservation(State& s, const std::vector<Ticket>& tried);
void PlanTick(State& s);

// --- Quotas (simulation_reclaim.cc) ---
enum class QuotaVerdict { kMay, kWaits, kNever };
QuotaVerdict CheckQuota(State& s, size_t job);
// Puts the job into the wait queue, and notes that it waits for quota.
void WaitForQuota(State& s, size_t job);
// Notes that the job no longer waits for quota.
void EndQuotaWait(State& s, size_t job);
void RefuseByQuota(State& s, size_t job);
// Reclaims the quota that the job's tenant owns and the job lacks. Returns
// false when no borrower can give it back now.
bool ReclaimQuota(State& s, size_t job);
// Called when no worker has room for the job, which waits. Reclaims borrowed
// memory at one worker, if it may, and reserves the worker for the job.
void ReclaimRoom(State& s, size_t job, const Request& request);
// Postpones the job's next reclaim by kReclaimRetry.
void PutReclaimOff(State& s, size_t job);
// Returns whether the job may reclaim now; if not, plans the time when it
// may.
bool MayReclaim(State& s, size_t job);
void PlanReclaim(State& s, size_t job);
std::vector<Victim> VictimsOf(State& s, const std::string& tenant);
// Takes the victims' workers; the jobs wait in the queue again.
void Evict(State& s, const std::vector<Victim>& victims);
void TakeBack(State& s, size_t job);

// --- Device time with a rate (simulation_credit.cc) ---
double UsedBy(State& s, size_t job);
bool TakeCredit(State& s, size_t job);
// Admits the job as soon as it is granted device time.
void OpenCredit(State& s, size_t job);
// Counts the job's total use so far.
void SettleCredit(State& s, size_t job, double used);
void CloseCredit(State& s, size_t job, double used);
void EndCreditWait(State& s, size_t job);
void AdvanceRates(State& s);
void PlanRates(State& s);

// --- At a worker (simulation_turns.cc) ---
void Assign(State& s, size_t job, size_t worker_index, const Terms& terms);
// Makes the job wait for its turn.
void Admit(State& s, size_t job);
// Returns the number of the program that the job is a run of.
uint64_t ProgramOf(State& s, const SimulatedJob& job);
// Returns the time that the job is expected to take there; 0 when unknown.
absl::Duration Expected(State& s, size_t job);
bool IsLate(State& s, size_t job);
// Refuses a job that is in service and has not begun.
void RefuseRun(State& s, size_t job);
// Refuses the waiting jobs that are certain to be late, before the next turn.
void RefuseLate(State& s, SimulatedWorker* worker);
// Removes the job from its worker when its turn ends.
void LeaveWorker(State& s, size_t job);
// Charges the job for the time that it used its worker's device.
void Bill(State& s, size_t job, double seconds);
// Starts the turn of the next job, if any waits.
void StartNext(State& s, size_t worker_index);
void Begin(State& s, size_t worker_index, size_t job);
void GoOn(State& s, size_t job);
// Plans to ask at the next edge whether the current turn yields.
void Look(State& s, size_t worker_index, double not_before);
// Asks whether the job yields, having done `done` seconds of its turn and
// having been preempted for `away` seconds.
FairQueue::Preemption Ask(State& s, size_t job, double done, double away);
void ComeToEdge(State& s, size_t job);
// Resumes the job after the preempting job is done, unless another one
// preempts it.
void ReturnTo(State& s, size_t job);
void FinishOne(State& s, size_t job);
// Reduces the worker's busy fraction by the time since its last update.
void Decay(State& s, SimulatedWorker* worker);
void Publish(State& s, size_t worker_index);

}  // namespace djinn::scheduler::simulation

#endif  // SCHEDULER_SIMULATOR_SIMULATION_H_
