#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
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
#include "scheduler/fairness/deadline_rule.h"
#include "scheduler/fairness/preemption_rule.h"
#include "scheduler/fairness/waiting_line.h"
#include "scheduler/placement/reservation.h"
#include "scheduler/simulator/generator.h"
#include "scheduler/simulator/simulated_worker.h"

namespace djinn::scheduler {
namespace {

// Over which a device's share of busy time is averaged.
constexpr double kWindowSeconds = 60;
// How often the coordinator tries those in line without a reason.
constexpr double kTickSeconds = 0.2;
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
        runs_(trace.jobs.size()),
        reservation_(absl::Seconds(trace.line_patience_seconds)) {
    for (const SimulatedTenant& tenant : trace.tenants) {
      line_.SetWeight(tenant.name, tenant.weight);
    }
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
      Arrive(job);
    }
    while (!events_.empty()) HandleOne();
    SumUp();
    return std::move(result_);
  }

 private:
  using Ticket = WaitingLine::Ticket;
  struct Run {
    int worker = -1;
    // In the line; 0: it is not there.
    Ticket ticket = 0;
    // Of the last decision: no worker had the memory.
    bool waits_for_room = false;
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
    enum class Outcome { kUnplaced, kLate, kFinished };
    Outcome outcome = Outcome::kUnplaced;
    // At its worker.
    FairQueue::Work work;
    PreemptionRule rule;
    // Grows whenever it goes on or gives way: events from before are stale.
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

  static int InLine(const SimulatedJob& job) {
    return static_cast<int>(job.class_in_line());
  }
  // When it is due that long after `seconds`.
  static absl::Duration Due(const SimulatedJob& job, double seconds) {
    return absl::Seconds(seconds + job.run_deadline_seconds);
  }
  static bool HasDeadline(const SimulatedJob& job) {
    return std::isfinite(job.run_deadline_seconds);
  }
  // Names the program that it is a run of.
  uint64_t ProgramOf(const SimulatedJob& job) {
    return programs_
        .try_emplace(std::make_tuple(job.tenant, job.state, job.work.phase,
                                     job.work.op_class),
                     programs_.size())
        .first->second;
  }
  // What it is known to take at its worker; 0 when that is not known.
  absl::Duration Expected(size_t index) {
    const Run& run = runs_[index];
    const SimulatedJob& job = trace_.jobs[index];
    if (!HasDeadline(job)) return absl::ZeroDuration();
    const absl::Duration expected =
        workers_[static_cast<size_t>(run.worker)]->run_times.Expected(
            ProgramOf(job), Now());
    return expected == absl::ZeroDuration()
               ? expected
               : expected + absl::Seconds(run.transfer);
  }
  static bool HasState(const SimulatedJob& job) { return !job.state.empty(); }
  StateKey KeyOf(const SimulatedJob& job) {
    const auto [it, added] =
        keys_.try_emplace(std::make_pair(job.tenant, job.state), keys_.size());
    return it->second;
  }

  // Without its work.
  Request RequestOf(size_t index) {
    const SimulatedJob& job = trace_.jobs[index];
    Request request;
    request.phase = job.work.phase;
    request.asked_bytes = job.state_bytes;
    if (HasState(job)) request.state = {{KeyOf(job), job.state_bytes}};
    reservation_.Apply(runs_[index].ticket, InLine(job), &request);
    return request;
  }

  // Whether it needs no more trying.
  bool TryPlace(size_t index) {
    const SimulatedJob& job = trace_.jobs[index];
    Work work;
    work.Add(job.work);
    Request request = RequestOf(index);
    request.work = &work;
    const Decision decision =
        Place(request, fleet_, policy_, factors_, &draws_, options_.placement);
    ++result_.decisions;
    result_.looked_at += decision.looked_at;
    if (absl::IsFailedPrecondition(decision.obstacle)) {
      LeaveLine(index);
      return true;
    }
    if (decision.worker_id.empty()) {
      runs_[index].waits_for_room =
          ErrorReason(decision.obstacle) == "NO_CAPACITY";
      return false;
    }
    line_.Serve(runs_[index].ticket, Now());
    LeaveLine(index);
    line_.Charge(trace_.tenants[job.tenant].name, WaitingLine::kTurn, Now());
    Assign(index, index_.at(decision.worker_id),
           decision.considered.front().terms);
    return true;
  }

  void Arrive(size_t index) {
    if (!freed_ || line_.empty()) {
      if (!TryPlace(index)) JoinLine(index);
      return;
    }
    // What has become free meanwhile is for those who waited for it.
    JoinLine(index);
    if (line_.size() <= WaitingLine::kMaxTriedAtOnce) RetrySome();
  }

  void JoinLine(size_t index) {
    const SimulatedJob& job = trace_.jobs[index];
    Run& run = runs_[index];
    run.ticket = line_.Join({.tenant = trace_.tenants[job.tenant].name,
                             .urgency = InLine(job),
                             .due = Due(job, job.arrival_seconds)},
                            Now());
    in_line_[run.ticket] = index;
    const auto plan = [&](double after, Event::Kind kind) {
      if (std::isfinite(after)) Plan(job.arrival_seconds + after, kind, index);
    };
    plan(trace_.line_patience_seconds, Event::Kind::kImpatient);
    plan(trace_.lease_request_timeout_seconds, Event::Kind::kExpired);
  }

  void LeaveLine(size_t index) {
    Run& run = runs_[index];
    const bool lifted = reservation_.Lift(run.ticket);
    line_.Leave(run.ticket, Now());
    in_line_.erase(run.ticket);
    run.ticket = 0;
    if (lifted) NoteFreed();
  }

  // Those in line have it with the next tick.
  void NoteFreed() {
    freed_ = true;
    untried_ = line_.size();
    PlanTick();
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
    worker.queue.Join(index, tenant.name, tenant.weight,
                      static_cast<int>(job.class_at_worker()));
    run.work = {.deadline = Due(job, now_), .expected = Expected(index)};
    worker.queue.MakeRunnable(index, run.work);
    if (IsLate(worker, index)) worker.refusals.push_back(index);
    if (worker.turns.empty()) {
      StartNext(worker_index);
    } else {
      Look(worker_index, /*not_before=*/0);
    }
    Publish(worker_index);
  }

  bool IsLate(const SimulatedWorker& worker, size_t job) {
    return LateBehind(worker.queue, job, runs_[job].work, worker.in_service,
                      Now())
        .has_value();
  }

  // It is in service, and not begun.
  void RefuseRun(size_t job) {
    Run& run = runs_[job];
    const size_t worker_index = static_cast<size_t>(run.worker);
    SimulatedWorker& worker = *workers_[worker_index];
    worker.queue.Done(job, absl::ZeroDuration(), std::nullopt);
    LeaveWorker(job);
    run.outcome = Run::Outcome::kLate;
    result_.workers[job] = -1;
    Publish(worker_index);
    NoteFreed();
  }

  // With its turn.
  void LeaveWorker(size_t job) {
    SimulatedWorker& worker = *workers_[static_cast<size_t>(runs_[job].worker)];
    worker.queued_seconds -= runs_[job].predicted;
    worker.queue.Leave(job);
    if (HasState(trace_.jobs[job])) {
      worker.memory.Unpin(KeyOf(trace_.jobs[job]));
    }
  }

  // Those that would be late anyway are refused before anybody's turn.
  void RefuseLate(SimulatedWorker* worker) {
    while (!worker->refusals.empty()) {
      const size_t job = worker->refusals.front();
      worker->refusals.pop_front();
      // It may have had its turn.
      const Run& run = runs_[job];
      if (run.outcome != Run::Outcome::kUnplaced || run.stretch > 0) continue;
      if (IsLate(*worker, job) &&
          worker->queue.TakeBeside(job, /*contested=*/true)) {
        RefuseRun(job);
      }
    }
  }

  // The next one's turn, if anybody waits.
  void StartNext(size_t worker_index) {
    SimulatedWorker& worker = *workers_[worker_index];
    worker.in_service.reset();
    RefuseLate(&worker);
    while (!worker.queue.empty()) {
      const size_t job = worker.queue.Take();
      const absl::Duration expected = Expected(job);
      if (JudgeDeadline(runs_[job].work.deadline, expected,
                        /*ahead=*/absl::ZeroDuration(),
                        Now()) == DeadlineVerdict::kInTime) {
        worker.in_service = {job, Now() + expected};
        return Begin(worker_index, job);
      }
      RefuseRun(job);
    }
    if (!worker.turns.empty()) ReturnTo(worker.turns.back());
  }

  void Begin(size_t worker_index, size_t job) {
    SimulatedWorker& worker = *workers_[worker_index];
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
    Plan(now_ + run.length - run.done, Event::Kind::kEnd, job);
  }

  void Plan(double seconds, Event::Kind kind, size_t job) {
    events_.push({seconds, events_planned_++, kind, job, runs_[job].stretch});
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
    Plan(run.resumed + edge - run.done, Event::Kind::kEdge, job);
  }

  void HandleOne() {
    const Event event = events_.top();
    events_.pop();
    const Run& run = runs_[event.job];
    switch (event.kind) {
      case Event::Kind::kEnd:
      case Event::Kind::kEdge:
        if (event.stretch != run.stretch) return;
        break;
      case Event::Kind::kImpatient:
      case Event::Kind::kExpired:
        if (run.ticket == 0) return;
        break;
      case Event::Kind::kTick:
        break;
    }
    now_ = event.seconds;
    switch (event.kind) {
      case Event::Kind::kEnd:
        return FinishOne(event.job);
      case Event::Kind::kEdge:
        return ComeToEdge(event.job);
      case Event::Kind::kExpired:
        LeaveLine(event.job);
        return PlanTick();
      case Event::Kind::kTick:
        tick_planned_ = false;
        return RetrySome();
      case Event::Kind::kImpatient:
        return RetrySome();
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
      case FairQueue::Preemption::kShort:
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
    if (FairQueue::GivesWay(asked)) {
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
    run.outcome = Run::Outcome::kFinished;
    Decay(&worker);
    worker.busy_share += took / kWindowSeconds;
    worker.busy_seconds += took;
    worker.turns.pop_back();
    worker.queue.Done(job, absl::Seconds(took), std::nullopt);
    LeaveWorker(job);
    if (worker.in_service.has_value() && worker.in_service->key == job) {
      worker.in_service.reset();
    }
    if (HasDeadline(trace_.jobs[job])) {
      worker.run_times.Note(ProgramOf(trace_.jobs[job]),
                            absl::Seconds(took - run.transfer), Now());
    }
    result_.cost += took * trace_.workers[worker_index].price_per_second;
    result_.device_seconds[trace_.jobs[job].tenant] += took;
    line_.Charge(trace_.tenants[trace_.jobs[job].tenant].name, took, Now());
    ++result_.finished;
    if (worker.turns.empty()) {
      StartNext(worker_index);
    } else {
      ReturnTo(worker.turns.back());
    }
    Publish(worker_index);
    Retry();
  }

  // Something may have become free.
  void Retry() {
    untried_ = line_.size();
    RetrySome();
  }

  void RetrySome() {
    freed_ = false;
    if (line_.empty()) return;
    const std::vector<Ticket> tried = line_.Try(
        Now(), [](const std::string&) { return std::vector<double>(); },
        [&](Ticket ticket) {
          const auto waiting = in_line_.find(ticket);
          return waiting == in_line_.end() || TryPlace(waiting->second);
        });
    untried_ -= std::min(untried_, WaitingLine::kMaxTries / 2);
    ReviewReservation(tried);
    if (untried_ > 0) PlanTick();
  }

  void ReviewReservation(const std::vector<Ticket>& tried) {
    const Ticket before = reservation_.ticket();
    reservation_.Review(
        tried,
        [this](Ticket ticket) -> std::optional<Reservation::Waiter> {
          const auto waiting = in_line_.find(ticket);
          if (waiting == in_line_.end() ||
              !runs_[waiting->second].waits_for_room) {
            return std::nullopt;
          }
          const SimulatedJob& job = trace_.jobs[waiting->second];
          return Reservation::Waiter{InLine(job),
                                     absl::Seconds(job.arrival_seconds)};
        },
        [this](Ticket ticket) { return RequestOf(in_line_.at(ticket)); },
        fleet_, Now());
    const Ticket after = reservation_.ticket();
    if (after != 0 && after != before) ++result_.reservations;
  }

  void PlanTick() {
    if (tick_planned_ || line_.empty()) return;
    tick_planned_ = true;
    Plan(now_ + kTickSeconds, Event::Kind::kTick, /*job=*/0);
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

  static double Percentile(std::vector<double> values, size_t percent) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[(values.size() - 1) * percent / 100];
  }
  static double P99(std::vector<double> values) {
    return Percentile(std::move(values), 99);
  }

  void SumUp() {
    std::vector<double> latencies;
    std::vector<double> interactive;
    double last = 0;
    std::map<JobClass, std::vector<double>> of_class;
    for (size_t index = 0; index < runs_.size(); ++index) {
      const Run& run = runs_[index];
      const SimulatedJob& job = trace_.jobs[index];
      ClassResult& result = result_.classes[job.class_at_worker()];
      ++result.jobs;
      result.deadlines += HasDeadline(job);
      result.unplaced += run.outcome == Run::Outcome::kUnplaced;
      result.late += run.outcome == Run::Outcome::kLate;
      if (run.outcome != Run::Outcome::kFinished) continue;
      ++result.finished;
      const double latency = run.end - job.arrival_seconds;
      result.attained +=
          HasDeadline(job) && latency <= job.run_deadline_seconds;
      latencies.push_back(latency);
      of_class[job.class_at_worker()].push_back(latency);
      if (job.class_at_worker() != JobClass::kBatch) {
        interactive.push_back(latency);
      }
      last = std::max(last, run.end);
    }
    for (auto& [job_class, of] : of_class) {
      ClassResult& result = result_.classes.at(job_class);
      result.p50_latency_seconds = Percentile(of, 50);
      result.p99_latency_seconds = P99(std::move(of));
    }
    result_.refused = runs_.size() - latencies.size();
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
  absl::flat_hash_map<
      std::tuple<size_t, std::string, semantics::Phase, semantics::OpClass>,
      uint64_t>
      programs_;
  std::vector<Run> runs_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t events_planned_ = 0;
  WaitingLine line_;
  absl::flat_hash_map<Ticket, size_t> in_line_;
  Reservation reservation_;
  // Something has become free since some were tried last.
  bool freed_ = false;
  // In line, and not tried since then.
  size_t untried_ = 0;
  bool tick_planned_ = false;
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
