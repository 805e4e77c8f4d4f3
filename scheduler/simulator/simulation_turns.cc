// Executes jobs at their worker: they wait for their turn, yield, and end.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/fairness/deadline_rule.h"
#include "scheduler/simulator/simulation.h"

namespace djinn::scheduler::simulation {
namespace {

// Time over which a device's busy fraction is averaged.
constexpr double kWindowSeconds = 60;
// Limits how often a job is asked during its turn whether it yields, because
// jobs of a trace may take hours.
constexpr double kMostLooks = 1000;

}  // namespace

void Assign(State& s, size_t index, size_t worker_index, const Terms& terms) {
  const SimulatedJob& job = s.trace.jobs[index];
  SimulatedWorker& worker = *s.workers[worker_index];
  const std::string& id = s.trace.workers[worker_index].id;
  Run& run = s.runs[index];
  run.worker = static_cast<int>(worker_index);
  run.placed = s.now;
  run.returns = false;
  s.placed[job.tenant].insert(index);
  s.quotas.Take(job.tenant, Now(s));
  worker.asked_bytes += job.state_bytes;
  run.transfer = terms.transfer_seconds;
  run.predicted = terms.occupied_seconds();
  s.result.workers[index] = run.worker;
  s.result.moved_bytes += terms.missing_bytes;
  if (job.has_state()) {
    std::vector<StateKey> dropped;
    worker.memory.Pin(KeyOf(s, job), job.state_bytes, &dropped);
    for (const StateKey key : dropped) s.fleet.Release(id, key);
    s.fleet.Hold(id, KeyOf(s, job));
  }
  worker.queued_seconds += run.predicted;
  const SimulatedTenant& tenant = TenantOf(s, index);
  worker.queue.Join(index, tenant.name, tenant.weight,
                    static_cast<int>(job.class_at_worker()));
  run.work = {.deadline = absl::Seconds(s.now + job.run_deadline_seconds),
              .expected = Expected(s, index)};
  OpenCredit(s, index);
  Publish(s, worker_index);
}

void Admit(State& s, size_t job) {
  const size_t worker_index = static_cast<size_t>(s.runs[job].worker);
  SimulatedWorker& worker = *s.workers[worker_index];
  worker.queue.MakeRunnable(job, s.runs[job].work);
  if (IsLate(s, job)) worker.refusals.push_back(job);
  if (worker.turns.empty()) {
    StartNext(s, worker_index);
  } else {
    Look(s, worker_index, /*not_before=*/0);
  }
}

uint64_t ProgramOf(State& s, const SimulatedJob& job) {
  return s.programs
      .try_emplace(std::make_tuple(job.tenant, job.state, job.work.phase,
                                   job.work.op_class),
                   s.programs.size())
      .first->second;
}

absl::Duration Expected(State& s, size_t index) {
  const SimulatedJob& job = s.trace.jobs[index];
  if (!job.has_deadline()) return absl::ZeroDuration();
  const absl::Duration expected =
      WorkerOf(s, index).run_times.Expected(ProgramOf(s, job), Now(s));
  return expected == absl::ZeroDuration()
             ? expected
             : expected + absl::Seconds(s.runs[index].transfer);
}

bool IsLate(State& s, size_t job) {
  const SimulatedWorker& worker = WorkerOf(s, job);
  return LateBehind(worker.queue, job, s.runs[job].work, worker.in_service,
                    Now(s))
      .has_value();
}

void RefuseRun(State& s, size_t job) {
  Run& run = s.runs[job];
  WorkerOf(s, job).queue.Done(job, absl::ZeroDuration(), std::nullopt);
  CloseCredit(s, job, /*used=*/0);
  LeaveWorker(s, job);
  run.end.outcome = JobEnd::Outcome::kLate;
  s.result.workers[job] = -1;
  Publish(s, static_cast<size_t>(run.worker));
  NoteFreed(s);
}

void LeaveWorker(State& s, size_t job) {
  SimulatedWorker& worker = WorkerOf(s, job);
  worker.queued_seconds -= s.runs[job].predicted;
  worker.queue.Leave(job);
  worker.asked_bytes -= s.trace.jobs[job].state_bytes;
  s.placed[s.trace.jobs[job].tenant].erase(job);
  s.quotas.Give(s.trace.jobs[job].tenant, Now(s));
  if (s.trace.jobs[job].has_state()) {
    worker.memory.Unpin(KeyOf(s, s.trace.jobs[job]));
  }
}

void RefuseLate(State& s, SimulatedWorker* worker) {
  while (!worker->refusals.empty()) {
    const size_t job = worker->refusals.front();
    worker->refusals.pop_front();
    // The job may have had its turn since it was queued for refusal.
    const Run& run = s.runs[job];
    if (run.end.outcome != JobEnd::Outcome::kUnplaced || run.begun) continue;
    if (IsLate(s, job) && worker->queue.TakeBeside(job, /*contested=*/true)) {
      RefuseRun(s, job);
    }
  }
}

void StartNext(State& s, size_t worker_index) {
  SimulatedWorker& worker = *s.workers[worker_index];
  worker.in_service.reset();
  RefuseLate(s, &worker);
  while (!worker.queue.empty()) {
    const size_t job = worker.queue.Take();
    const absl::Duration expected = Expected(s, job);
    if (JudgeDeadline(s.runs[job].work.deadline, expected,
                      /*ahead=*/absl::ZeroDuration(),
                      Now(s)) == DeadlineVerdict::kInTime) {
      worker.in_service = {job, Now(s) + expected};
      return Begin(s, worker_index, job);
    }
    RefuseRun(s, job);
  }
  if (!worker.turns.empty()) ReturnTo(s, worker.turns.back());
}

void Begin(State& s, size_t worker_index, size_t job) {
  SimulatedWorker& worker = *s.workers[worker_index];
  worker.turns.push_back(job);
  Run& run = s.runs[job];
  run.begun = true;
  run.length = run.transfer + (run.predicted - run.transfer) * run.factor;
  GoOn(s, job);
  // A job of higher priority may still wait at this worker, because its tenant
  // has used more.
  Look(s, worker_index, /*not_before=*/0);
}

void GoOn(State& s, size_t job) {
  Run& run = s.runs[job];
  run.resumed = s.now;
  ++run.stretch;
  run.look_planned = false;
  Plan(s, s.now + run.length - run.done, Event::Kind::kEnd, job);
}

void Look(State& s, size_t worker_index, double not_before) {
  SimulatedWorker& worker = *s.workers[worker_index];
  if (!s.options.preemption || worker.turns.empty() || worker.queue.empty()) {
    return;
  }
  const size_t job = worker.turns.back();
  Run& run = s.runs[job];
  if (run.look_planned) return;
  const double calls =
      static_cast<double>(std::max<uint64_t>(s.trace.jobs[job].work.calls, 1));
  const double call = (run.length - run.transfer) / calls;
  // The extra thousandth of a call prevents a rounding error from planning an
  // edge for a call of no length.
  const double from =
      run.done + std::max(not_before, s.now) - run.resumed + call / 1000;
  // The job executes at least one call after it resumes.
  double edge = run.transfer;
  if (from >= run.transfer && call > 0) {
    edge += (std::floor((from - run.transfer) / call) + 1) * call;
  }
  // The end of the job is no edge; nor is a remainder that rounding leaves
  // before it.
  if (edge > run.length - call / 2) return;
  run.look_planned = true;
  Plan(s, run.resumed + edge - run.done, Event::Kind::kEdge, job);
}

FairQueue::Preemption Ask(State& s, size_t job, double done, double away) {
  const Run& run = s.runs[job];
  if (run.rule.Ask(absl::Seconds(away)) != PreemptionRule::Verdict::kMay) {
    return FairQueue::Preemption::kNone;
  }
  FairQueue& queue = WorkerOf(s, job).queue;
  queue.Charge(job, absl::Seconds(done));
  const uint64_t key = job;
  return queue.MayPreempt({&key, 1}, absl::Seconds(s.now + run.length - done));
}

void ComeToEdge(State& s, size_t job) {
  Run& run = s.runs[job];
  const size_t worker_index = static_cast<size_t>(run.worker);
  run.look_planned = false;
  const double done = run.done + s.now - run.resumed;
  switch (Ask(s, job, done, /*away=*/0)) {
    case FairQueue::Preemption::kNone:
      return;
    case FairQueue::Preemption::kLater: {
      const double pause =
          std::max(absl::ToDoubleSeconds(PreemptionRule::kLookEvery),
                   run.length / kMostLooks);
      return Look(s, worker_index, s.now + pause);
    }
    case FairQueue::Preemption::kHigherPriority:
    case FairQueue::Preemption::kDeadline:
    case FairQueue::Preemption::kShort:
      break;
  }
  run.done = done;
  run.yielded_for = s.now;
  ++run.stretch;
  StartNext(s, worker_index);
}

void ReturnTo(State& s, size_t job) {
  Run& run = s.runs[job];
  const size_t worker_index = static_cast<size_t>(run.worker);
  const FairQueue::Preemption asked =
      Ask(s, job, run.done, s.now - run.yielded_for);
  if (FairQueue::Yields(asked)) {
    return StartNext(s, worker_index);
  }
  run.rule.NoteYield();
  ++s.result.preemptions;
  GoOn(s, job);
  Look(s, worker_index, /*not_before=*/0);
}

void Bill(State& s, size_t job, double seconds) {
  SimulatedWorker& worker = WorkerOf(s, job);
  Decay(s, &worker);
  worker.busy_share += seconds / kWindowSeconds;
  worker.busy_seconds += seconds;
  s.result.cost +=
      seconds *
      s.trace.workers[static_cast<size_t>(s.runs[job].worker)].price_per_second;
  s.result.device_seconds[s.trace.jobs[job].tenant] += seconds;
  s.line.queue.Charge(TenantOf(s, job).name, seconds, Now(s));
}

void FinishOne(State& s, size_t job) {
  Run& run = s.runs[job];
  const size_t worker_index = static_cast<size_t>(run.worker);
  SimulatedWorker& worker = *s.workers[worker_index];
  const double took = run.length;
  run.end = {JobEnd::Outcome::kFinished, s.now};
  worker.turns.pop_back();
  worker.queue.Done(job, absl::Seconds(took), std::nullopt);
  CloseCredit(s, job, took);
  LeaveWorker(s, job);
  if (worker.in_service.has_value() && worker.in_service->key == job) {
    worker.in_service.reset();
  }
  if (s.trace.jobs[job].has_deadline()) {
    worker.run_times.Note(ProgramOf(s, s.trace.jobs[job]),
                          absl::Seconds(took - run.transfer), Now(s));
  }
  Bill(s, job, took);
  ++s.result.finished;
  if (worker.turns.empty()) {
    StartNext(s, worker_index);
  } else {
    ReturnTo(s, worker.turns.back());
  }
  Publish(s, worker_index);
  Retry(s);
}

void Decay(State& s, SimulatedWorker* worker) {
  worker->busy_share *= std::exp((worker->busy_time - s.now) / kWindowSeconds);
  worker->busy_time = s.now;
}

void Publish(State& s, size_t worker_index) {
  SimulatedWorker& worker = *s.workers[worker_index];
  Decay(s, &worker);
  s.fleet.Update(s.trace.workers[worker_index].id, [&](WorkerFacts* facts) {
    facts->available_bytes = worker.memory.available_bytes();
    facts->queued_seconds = std::max(worker.queued_seconds, 0.0);
    facts->busy_share = worker.busy_share;
  });
}

}  // namespace djinn::scheduler::simulation
