#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "scheduler/fairness/preemption_rule.h"
#include "scheduler/simulator/generator.h"
#include "scheduler/simulator/simulated_worker.h"

namespace djinn::scheduler {
namespace {

// Over which a device's share of busy time is averaged.
constexpr double kWindowSeconds = 60;
// Jobs that wait for a worker and are tried again when one has finished.
constexpr size_t kMaxRetries = 16;
// Of FairQueue; only their order counts.
constexpr int kBatch = 1;
constexpr int kInteractive = 2;
// A job is not asked more often than this in all whether it gives way by now:
// jobs of a trace may take hours.
constexpr double kMostLooks = 1000;

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_TRACE", what);
}

absl::Status Check(const Trace& trace) {
  if (trace.workers.empty()) return Bad("there are no workers");
  if (trace.tenants.empty()) return Bad("there are no tenants");
  absl::flat_hash_set<std::string> ids;
  for (const WorkerFacts& worker : trace.workers) {
    if (!ids.insert(worker.id).second) {
      return Bad(absl::StrCat("worker ", worker.id, " is there twice"));
    }
    if (!IsKnown(worker.speed)) {
      return Bad(absl::StrCat("worker ", worker.id, " has no speed"));
    }
  }
  for (const SimulatedTenant& tenant : trace.tenants) {
    if (!(tenant.weight > 0)) {
      return Bad(absl::StrCat("tenant ", tenant.name, " has no weight"));
    }
  }
  double last = 0;
  for (const SimulatedJob& job : trace.jobs) {
    if (!(job.arrival_seconds >= last)) {
      return Bad("jobs do not come in order of arrival");
    }
    last = job.arrival_seconds;
    if (job.tenant >= trace.tenants.size()) {
      return Bad(absl::StrCat("there is no tenant ", job.tenant));
    }
  }
  return absl::OkStatus();
}

class Simulation {
 public:
  Simulation(const Trace& trace, const Policy& policy,
             const SimulationOptions& options)
      : trace_(trace),
        policy_(policy),
        options_(options),
        draws_(trace.seed),
        noise_(trace.seed + 1),
        runs_(trace.jobs.size()) {
    for (size_t i = 0; i < trace.workers.size(); ++i) {
      WorkerFacts facts = trace.workers[i];
      facts.available_bytes = facts.memory_bytes;
      index_[facts.id] = i;
      workers_.push_back(std::make_unique<SimulatedWorker>(facts.memory_bytes));
      fleet_.Put(std::move(facts));
    }
    result_.device_seconds.resize(trace.tenants.size());
    result_.workers.assign(trace.jobs.size(), -1);
  }

  SimulationResult Play() {
    for (size_t job = 0; job < trace_.jobs.size(); ++job) {
      const double arrival = trace_.jobs[job].arrival_seconds;
      while (!events_.empty() && events_.top().seconds <= arrival) HandleOne();
      now_ = arrival;
      // Whatever it draws, all policies see the same noise.
      runs_[job].factor = DrawFactor(&noise_, trace_.noise);
      if (!TryPlace(job)) waiting_.push_back(job);
    }
    while (!events_.empty()) HandleOne();
    // Nothing will be different any more.
    result_.refused += waiting_.size();
    SumUp();
    return std::move(result_);
  }

 private:
  struct Run {
    int worker = -1;
    double factor = 1;
    double predicted = 0;
    double transfer = 0;
    // All that its turn takes, but for what goes first; and of that, what was
    // done when it went on last.
    double length = 0;
    double done = 0;
    double resumed = 0;
    double gave_way = 0;
    double end = 0;
    PreemptionRule rule;
    // Grows whenever it goes on or gives way: events from before are stale.
    uint64_t stretch = 0;
    bool look_planned = false;
  };
  // Of the job whose turn runs: its turn ends, or it comes to an edge between
  // two calls.
  struct Event {
    double seconds = 0;
    uint64_t order = 0;
    size_t job = 0;
    uint64_t stretch = 0;
    bool edge = false;

    bool operator>(const Event& other) const {
      return std::tie(seconds, order) > std::tie(other.seconds, other.order);
    }
  };

  static int PriorityOf(const SimulatedJob& job) {
    return job.work.phase == semantics::Phase::kTraining ? kBatch
                                                         : kInteractive;
  }
  static bool HasState(const SimulatedJob& job) { return !job.state.empty(); }
  StateKey KeyOf(const SimulatedJob& job) {
    const auto [it, added] =
        keys_.try_emplace(std::make_pair(job.tenant, job.state), keys_.size());
    return it->second;
  }

  // Whether it needs no more trying.
  bool TryPlace(size_t index) {
    const SimulatedJob& job = trace_.jobs[index];
    Work work;
    work.Add(job.work);
    Request request;
    request.work = &work;
    request.phase = job.work.phase;
    request.asked_bytes = job.state_bytes;
    if (HasState(job)) request.state = {{KeyOf(job), job.state_bytes}};
    const Decision decision =
        Place(request, fleet_, policy_, factors_, &draws_, options_.placement);
    ++result_.decisions;
    result_.looked_at += decision.looked_at;
    if (absl::IsFailedPrecondition(decision.obstacle)) {
      ++result_.refused;
      return true;
    }
    if (decision.worker_id.empty()) return false;
    Assign(index, index_.at(decision.worker_id),
           decision.considered.front().terms);
    return true;
  }

  void Assign(size_t index, size_t worker_index, const Terms& terms) {
    const SimulatedJob& job = trace_.jobs[index];
    SimulatedWorker& worker = *workers_[worker_index];
    const std::string& id = trace_.workers[worker_index].id;
    Run& run = runs_[index];
    run.worker = static_cast<int>(worker_index);
    run.transfer = terms.transfer_seconds;
    run.predicted = terms.occupied_seconds();
    result_.workers[index] = run.worker;
    result_.moved_bytes += terms.missing_bytes;
    if (HasState(job)) {
      std::vector<StateKey> dropped;
      worker.memory.Pin(KeyOf(job), job.state_bytes, &dropped);
      for (const StateKey key : dropped) fleet_.Release(id, key);
      fleet_.Hold(id, KeyOf(job));
    }
    worker.queued_seconds += run.predicted;
    const SimulatedTenant& tenant = trace_.tenants[job.tenant];
    worker.queue.Join(index, tenant.name, tenant.weight, PriorityOf(job));
    worker.queue.MakeRunnable(index,
                              {.expected = absl::Seconds(run.predicted)});
    if (worker.turns.empty()) {
      StartNext(worker_index);
    } else {
      Look(worker_index, /*not_before=*/0);
    }
    Publish(worker_index);
  }

  void StartNext(size_t worker_index) {
    SimulatedWorker& worker = *workers_[worker_index];
    if (worker.queue.empty()) return;
    const size_t job = worker.queue.Take();
    worker.turns.push_back(job);
    Run& run = runs_[job];
    run.length = run.transfer + (run.predicted - run.transfer) * run.factor;
    GoOn(job);
    // Who is more urgent, but of a tenant that has had more, still waits.
    Look(worker_index, /*not_before=*/0);
  }

  void GoOn(size_t job) {
    Run& run = runs_[job];
    run.resumed = now_;
    ++run.stretch;
    run.look_planned = false;
    Plan(now_ + run.length - run.done, job, /*edge=*/false);
  }

  void Plan(double seconds, size_t job, bool edge) {
    events_.push({seconds, events_planned_++, job, runs_[job].stretch, edge});
  }

  // Asks whether the turn that runs gives way, at its next edge.
  void Look(size_t worker_index, double not_before) {
    SimulatedWorker& worker = *workers_[worker_index];
    if (!options_.preemption || worker.turns.empty() || worker.queue.empty()) {
      return;
    }
    const size_t job = worker.turns.back();
    Run& run = runs_[job];
    if (run.look_planned) return;
    const double calls =
        static_cast<double>(std::max<uint64_t>(trace_.jobs[job].work.calls, 1));
    const double call = (run.length - run.transfer) / calls;
    // Rounding does not make a call of nothing.
    const double from =
        run.done + std::max(not_before, now_) - run.resumed + call / 1000;
    // Since it went on it has done one call at least.
    double edge = run.transfer;
    if (from >= run.transfer && call > 0) {
      edge += (std::floor((from - run.transfer) / call) + 1) * call;
    }
    // Its end is no edge, nor is what rounding leaves before it.
    if (edge > run.length - call / 2) return;
    run.look_planned = true;
    Plan(run.resumed + edge - run.done, job, /*edge=*/true);
  }

  void HandleOne() {
    const Event event = events_.top();
    events_.pop();
    const Run& run = runs_[event.job];
    if (event.stretch != run.stretch) return;
    now_ = event.seconds;
    if (event.edge) {
      ComeToEdge(event.job);
    } else {
      FinishOne(event.job);
    }
  }

  // Whether somebody goes first of a job that has done so much of its turn, and
  // for so long others went first.
  FairQueue::Preemption Ask(size_t job, double done, double away) {
    const Run& run = runs_[job];
    if (run.rule.Ask(absl::Seconds(away)) != PreemptionRule::Verdict::kMay) {
      return FairQueue::Preemption::kNone;
    }
    FairQueue& queue = workers_[static_cast<size_t>(run.worker)]->queue;
    queue.Charge(job, absl::Seconds(done));
    const uint64_t key = job;
    return queue.MayPreempt({&key, 1}, absl::Seconds(now_ + run.length - done));
  }

  void ComeToEdge(size_t job) {
    Run& run = runs_[job];
    const size_t worker_index = static_cast<size_t>(run.worker);
    run.look_planned = false;
    const double done = run.done + now_ - run.resumed;
    switch (Ask(job, done, /*away=*/0)) {
      case FairQueue::Preemption::kNone:
        return;
      case FairQueue::Preemption::kLater: {
        const double pause =
            std::max(absl::ToDoubleSeconds(PreemptionRule::kLookEvery),
                     run.length / kMostLooks);
        return Look(worker_index, now_ + pause);
      }
      case FairQueue::Preemption::kHigherPriority:
      case FairQueue::Preemption::kDeadline:
        break;
    }
    run.done = done;
    run.gave_way = now_;
    ++run.stretch;
    StartNext(worker_index);
  }

  // Whoever went first of the job is done.
  void ReturnTo(size_t job) {
    Run& run = runs_[job];
    const size_t worker_index = static_cast<size_t>(run.worker);
    const FairQueue::Preemption asked = Ask(job, run.done, now_ - run.gave_way);
    if (asked == FairQueue::Preemption::kHigherPriority ||
        asked == FairQueue::Preemption::kDeadline) {
      return StartNext(worker_index);
    }
    run.rule.GaveWay();
    ++result_.preemptions;
    GoOn(job);
    Look(worker_index, /*not_before=*/0);
  }

  void FinishOne(size_t job) {
    Run& run = runs_[job];
    const size_t worker_index = static_cast<size_t>(run.worker);
    SimulatedWorker& worker = *workers_[worker_index];
    const double took = run.length;
    run.end = now_;
    Decay(&worker);
    worker.busy_share += took / kWindowSeconds;
    worker.busy_seconds += took;
    worker.queued_seconds -= run.predicted;
    worker.turns.pop_back();
    worker.queue.Done(job, absl::Seconds(took), std::nullopt);
    worker.queue.Leave(job);
    if (HasState(trace_.jobs[job])) {
      worker.memory.Unpin(KeyOf(trace_.jobs[job]));
    }
    result_.cost += took * trace_.workers[worker_index].price_per_second;
    result_.device_seconds[trace_.jobs[job].tenant] += took;
    ++result_.finished;
    if (worker.turns.empty()) {
      StartNext(worker_index);
    } else {
      ReturnTo(worker.turns.back());
    }
    Publish(worker_index);
    Retry();
  }

  void Retry() {
    const size_t turns = std::min(waiting_.size(), kMaxRetries);
    for (size_t i = 0; i < turns; ++i) {
      const size_t job = waiting_.front();
      waiting_.pop_front();
      if (!TryPlace(job)) waiting_.push_back(job);
    }
  }

  // The share that is left of the last minute's.
  void Decay(SimulatedWorker* worker) {
    worker->busy_share *= std::exp((worker->busy_time - now_) / kWindowSeconds);
    worker->busy_time = now_;
  }

  void Publish(size_t worker_index) {
    SimulatedWorker& worker = *workers_[worker_index];
    Decay(&worker);
    fleet_.Update(trace_.workers[worker_index].id, [&](WorkerFacts* facts) {
      facts->available_bytes = worker.memory.available_bytes();
      facts->queued_seconds = std::max(worker.queued_seconds, 0.0);
      facts->busy_share = worker.busy_share;
    });
  }

  static double P99(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[(values.size() - 1) * 99 / 100];
  }

  void SumUp() {
    std::vector<double> latencies;
    std::vector<double> interactive;
    double last = 0;
    for (size_t job = 0; job < runs_.size(); ++job) {
      if (runs_[job].worker < 0) continue;
      latencies.push_back(runs_[job].end - trace_.jobs[job].arrival_seconds);
      if (PriorityOf(trace_.jobs[job]) == kInteractive) {
        interactive.push_back(latencies.back());
      }
      last = std::max(last, runs_[job].end);
    }
    if (latencies.empty()) return;
    double sum = 0;
    for (const double latency : latencies) sum += latency;
    result_.mean_latency_seconds = sum / static_cast<double>(latencies.size());
    result_.p99_latency_seconds = P99(std::move(latencies));
    result_.interactive_p99_seconds = P99(std::move(interactive));
    result_.makespan_seconds = last - trace_.jobs.front().arrival_seconds;
    const double count = static_cast<double>(workers_.size());
    double busy = 0;
    for (const auto& worker : workers_) busy += worker->busy_seconds;
    result_.busy_seconds = busy;
    double squares = 0;
    for (const auto& worker : workers_) {
      squares += std::pow(worker->busy_seconds - busy / count, 2);
    }
    result_.imbalance = std::sqrt(squares / count) / (busy / count);
  }

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
  std::vector<Run> runs_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t events_planned_ = 0;
  std::deque<size_t> waiting_;
  double now_ = 0;
  SimulationResult result_;
};

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const Trace& trace,
                                          const Policy& policy,
                                          const SimulationOptions& options) {
  DJINN_RETURN_IF_ERROR(Check(trace));
  return Simulation(trace, policy, options).Play();
}

}  // namespace djinn::scheduler
