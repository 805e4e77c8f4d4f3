// A trace as it is played: simulator.h says by which rules.
//
// One class, with a file for each of what happens to a job: simulation_line.cc
// for how it gets a worker, simulation_reclaim.cc for what quotas have to do
// with that, simulation_credit.cc for the device time that it is granted there,
// simulation_turns.cc for what it does there. What is to come lies in a queue
// of events, by time.
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

namespace djinn::scheduler {

class Simulation {
 public:
  // The trace is one that can be played. All must outlive it.
  Simulation(const Trace& trace, const Policy& policy,
             const SimulationOptions& options);

  // Once.
  SimulationResult Play();

 private:
  using Ticket = WaitQueue::Ticket;
  // A job, while it is played.
  struct Run {
    int worker = -1;
    // When it asked for a worker.
    double asked = 0;
    // In the line; 0: it is not there.
    Ticket ticket = 0;
    // It lost a worker to another tenant, and goes before others of its own;
    // how often it did so.
    bool returns = false;
    int reclaims = 0;
    // What others borrow is not taken back for it before.
    double next_reclaim = 0;
    // Since when it waits for quota, if it does; it did once.
    std::optional<double> quota_asked;
    bool waited_for_quota = false;
    // Of the last decision: no worker had the memory.
    bool waits_for_room = false;
    double factor = 1;
    double predicted = 0;
    double transfer = 0;
    // When it got its worker.
    double placed = 0;
    // Device time, where that has a rate: what it was granted, what of its use
    // was counted, since when it waits for some.
    double granted = 0;
    double billed = 0;
    double credit_asked = 0;
    // Its turn has begun.
    bool begun = false;
    // All that its turn takes, but for what goes first; and of that, what was
    // done when it went on last.
    double length = 0;
    double done = 0;
    double resumed = 0;
    double yielded_for = 0;
    JobEnd end;
    // At its worker.
    FairQueue::Work work;
    PreemptionRule rule;
    // Grows whenever it goes on or yields: events from before are stale.
    uint64_t stretch = 0;
    bool look_planned = false;
  };
  struct Event {
    enum class Kind {
      // Of the job whose turn runs: its turn ends, or it comes to an edge
      // between two calls.
      kEnd,
      kEdge,
      // Of a job in line: it has waited for as long as the line is patient, or
      // as a request may wait.
      kImpatient,
      kExpired,
      // Of nobody: those in line are tried that were not.
      kTick,
      // Rates of device time are shared out anew.
      kRates,
      // Somebody in line may take back what it could not before.
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

  absl::Duration Now() const { return absl::Seconds(now_); }
  const SimulatedTenant& TenantOf(size_t job) const {
    return trace_.tenants[trace_.jobs[job].tenant];
  }
  SimulatedWorker& WorkerOf(size_t job) {
    return *workers_[static_cast<size_t>(runs_[job].worker)];
  }
  void Plan(double seconds, Event::Kind kind, size_t job);
  // Of what was planned, what comes first; nothing if it is stale.
  void HandleOne();
  SimulationResult Finish();

  // The way to a worker.
  static int InLine(const SimulatedJob& job) {
    return static_cast<int>(job.class_in_line());
  }
  StateKey KeyOf(const SimulatedJob& job);
  // Without its work.
  Request RequestOf(size_t job);
  void Arrive(size_t job);
  // Whether it needs no more trying. It is in the line if it does.
  bool TryPlace(size_t job);
  // If it is not there already.
  void JoinLine(size_t job);
  void LeaveLine(size_t job);
  // Those in line have what has become free with the next tick; or now.
  void NoteFreed();
  void Retry();
  void RetrySome();
  void ReviewReservation(const std::vector<Ticket>& tried);
  void PlanTick();

  // What quotas have to do with that.
  enum class QuotaVerdict { kMay, kWaits, kNever };
  QuotaVerdict CheckQuota(size_t job);
  // It is in the line for that, from now on if it was not.
  void WaitForQuota(size_t job);
  // Whatever it waits for now.
  void EndQuotaWait(size_t job);
  void RefuseByQuota(size_t job);
  // Takes back what keeps the job from its tenant's own; false when nobody who
  // has it can give it back now.
  bool ReclaimQuota(size_t job);
  // No worker has room for the job, which is in the line: takes back what
  // others borrow at one, if it may, and keeps that for it.
  void ReclaimRoom(size_t job, const Request& request);
  // It is looked for the job in a while again.
  void PutReclaimOff(size_t job);
  // Whether it may be looked for now; if not, it will be.
  bool MayReclaim(size_t job);
  void PlanReclaim(size_t job);
  std::vector<Victim> VictimsOf(const std::string& tenant);
  // They lose their workers, and wait in line again.
  void Evict(const std::vector<Victim>& victims);
  void TakeBack(size_t job);

  // Device time, where it has a rate.
  double UsedBy(size_t job);
  bool TakeCredit(size_t job);
  // Admits it as soon as it is granted some.
  void OpenCredit(size_t job);
  // It has used so much in all.
  void SettleCredit(size_t job, double used);
  void CloseCredit(size_t job, double used);
  void EndCreditWait(size_t job);
  void AdvanceRates();
  void PlanRates();

  // At a worker.
  void Assign(size_t job, size_t worker_index, const Terms& terms);
  // It waits for its turn from now on.
  void Admit(size_t job);
  // Names the program that it is a run of.
  uint64_t ProgramOf(const SimulatedJob& job);
  // What it is known to take there; 0 when that is not known.
  absl::Duration Expected(size_t job);
  bool IsLate(size_t job);
  // It is in service, and not begun.
  void RefuseRun(size_t job);
  // Those that would be late anyway are refused before anybody's turn.
  void RefuseLate(SimulatedWorker* worker);
  // With its turn.
  void LeaveWorker(size_t job);
  // It kept its worker's device for so long.
  void Bill(size_t job, double seconds);
  // The next one's turn, if anybody waits.
  void StartNext(size_t worker_index);
  void Begin(size_t worker_index, size_t job);
  void GoOn(size_t job);
  // Asks whether the turn that runs yields, at its next edge.
  void Look(size_t worker_index, double not_before);
  // Whether somebody goes first of a job that has done so much of its turn, and
  // for so long others went first.
  FairQueue::Preemption Ask(size_t job, double done, double away);
  void ComeToEdge(size_t job);
  // Whoever went first of the job is done.
  void ReturnTo(size_t job);
  void FinishOne(size_t job);
  // The share that is left of the last minute's.
  void Decay(SimulatedWorker* worker);
  void Publish(size_t worker_index);

  const Trace& trace_;
  const Policy& policy_;
  const SimulationOptions options_;
  Fleet fleet_;
  semantics::CostFactors factors_;
  Randomness draws_;
  Randomness noise_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  absl::flat_hash_map<std::string, size_t> index_;
  absl::flat_hash_map<std::pair<size_t, std::string>, StateKey> keys_;
  absl::flat_hash_map<
      std::tuple<size_t, std::string, semantics::Phase, semantics::OpClass>,
      uint64_t>
      programs_;
  std::vector<Run> runs_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t events_planned_ = 0;
  WaitQueue line_;
  absl::flat_hash_map<Ticket, size_t> in_line_;
  Reservation reservation_;
  // Something has become free since some were tried last.
  bool freed_ = false;
  // In line, and not tried since then.
  size_t untried_ = 0;
  bool tick_planned_ = false;
  SimulatedQuotas quotas_;
  absl::flat_hash_map<std::string, size_t> tenant_index_;
  // Jobs that have a worker, by tenant.
  std::vector<std::set<size_t>> placed_;
  // Of these, those that wait for device time to be granted, in order.
  std::vector<size_t> without_credit_;
  bool rates_planned_ = false;
  bool reclaim_planned_ = false;
  std::vector<TenantResult> tenants_;
  double now_ = 0;
  SimulationResult result_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_SIMULATOR_SIMULATION_H_
