// Executes jobs at their worker: they wait for their turn, yield, and end.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/fairness/deadline_rule.h"
#include "scheduler/simulator/simulation.h"

namespace djinn::scheduler {
namespace {

// Time over which a device's busy fraction is averaged.
constexpr double kWindowSeconds = 60;
// Limits how often a job is asked during its turn whether it yields, because
// jobs of a trace may take hours.
constexpr double kMostLooks = 1000;

}  // namespace

void Simulation::Assign(size_t index, size_t worker_index, const Terms& terms) {
  const SimulatedJob& job = trace_.jobs[index];
  SimulatedWorker& worker = *workers_[worker_index];
  const std::string& id = trace_.workers[worker_index].id;
  Run& run = runs_[index];
  run.worker = static_cast<int>(worker_index);
  run.placed = now_;
  run.returns = false;
  placed_[job.tenant].insert(index);
  quotas_.Take(job.tenant, Now());
  worker.asked_bytes += job.state_bytes;
  run.transfer = terms.transfer_seconds;
  run.predicted = terms.occupied_seconds();
  result_.workers[index] = run.worker;
  result_.moved_bytes += terms.missing_bytes;
  if (job.has_state()) {
    std::vector<StateKey> dropped;
    worker.memory.Pin(KeyOf(job), job.state_bytes, &dropped);
    for (const StateKey key : dropped) fleet_.Release(id, key);
    fleet_.Hold(id, KeyOf(job));
  }
  worker.queued_seconds += run.predicted;
  const SimulatedTenant& tenant = TenantOf(index);
  worker.queue.Join(index, tenant.name, tenant.weight,
                    static_cast<int>(job.class_at_worker()));
  run.work = {.deadline = absl::Seconds(now_ + job.run_deadline_seconds),
              .expected = Expected(index)};
  OpenCredit(index);
  Publish(worker_index);
}

void Simulation::Admit(size_t job) {
  const size_t worker_index = static_cast<size_t>(runs_[job].worker);
  SimulatedWorker& worker = *workers_[worker_index];
  worker.queue.MakeRunnable(job, runs_[job].work);
  if (IsLate(job)) worker.refusals.push_back(job);
  if (worker.turns.empty()) {
    StartNext(worker_index);
  } else {
    Look(worker_index, /*not_before=*/0);
  }
}

uint64_t Simulation::ProgramOf(const SimulatedJob& job) {
  return programs_
      .try_emplace(std::make_tuple(job.tenant, job.state, job.work.phase,
                                   job.work.op_class),
                   programs_.size())
      .first->second;
}

absl::Duration Simulation::Expected(size_t index) {
  const SimulatedJob& job = trace_.jobs[index];
  if (!job.has_deadline()) return absl::ZeroDuration();
  const absl::Duration expected =
      WorkerOf(index).run_times.Expected(ProgramOf(job), Now());
  return expected == absl::ZeroDuration()
             ? expected
             : expected + absl::Seconds(runs_[index].transfer);
}

bool Simulation::IsLate(size_t job) {
  const SimulatedWorker& worker = WorkerOf(job);
  return LateBehind(worker.queue, job, runs_[job].work, worker.in_service,
                    Now())
      .has_value();
}

void Simulation::RefuseRun(size_t job) {
  Run& run = runs_[job];
  WorkerOf(job).queue.Done(job, absl::ZeroDuration(), std::nullopt);
  CloseCredit(job, /*used=*/0);
  LeaveWorker(job);
  run.end.outcome = JobEnd::Outcome::kLate;
  result_.workers[job] = -1;
  Publish(static_cast<size_t>(run.worker));
  NoteFreed();
}

void Simulation::LeaveWorker(size_t job) {
  SimulatedWorker& worker = WorkerOf(job);
  worker.queued_seconds -= runs_[job].predicted;
  worker.queue.Leave(job);
  worker.asked_bytes -= trace_.jobs[job].state_bytes;
  placed_[trace_.jobs[job].tenant].erase(job);
  quotas_.Give(trace_.jobs[job].tenant, Now());
  if (trace_.jobs[job].has_state()) {
    worker.memory.Unpin(KeyOf(trace_.jobs[job]));
  }
}

void Simulation::RefuseLate(SimulatedWorker* worker) {
  while (!worker->refusals.empty()) {
    const size_t job = worker->refusals.front();
    worker->refusals.pop_front();
    // The job may have had its turn since it was queued for refusal.
    const Run& run = runs_[job];
    if (run.end.outcome != JobEnd::Outcome::kUnplaced || run.begun) continue;
    if (IsLate(job) && worker->queue.TakeBeside(job, /*contested=*/true)) {
      RefuseRun(job);
    }
  }
}

void Simulation::StartNext(size_t worker_index) {
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

void Simulation::Begin(size_t worker_index, size_t job) {
  SimulatedWorker& worker = *workers_[worker_index];
  worker.turns.push_back(job);
  Run& run = runs_[job];
  run.begun = true;
  run.length = run.transfer + (run.predicted - run.transfer) * run.factor;
  GoOn(job);
  // A job of higher priority may still wait at this worker, because its tenant
  // has used more.
  Look(worker_index, /*not_before=*/0);
}

void Simulation::GoOn(size_t job) {
  Run& run = runs_[job];
  run.resumed = now_;
  ++run.stretch;
  run.look_planned = false;
  Plan(now_ + run.length - run.done, Event::Kind::kEnd, job);
}

void Simulation::Look(size_t worker_index, double not_before) {
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
  // The extra thousandth of a call prevents a rounding error from planning an
  // edge for a call of no length.
  const double from =
      run.done + std::max(not_before, now_) - run.resumed + call / 1000;
  // The job executes at least one call after it resumes.
  double edge = run.transfer;
  if (from >= run.transfer && call > 0) {
    edge += (std::floor((from - run.transfer) / call) + 1) * call;
  }
  // The end of the job is no edge; nor is a remainder that rounding leaves
  // before it.
  if (edge > run.length - call / 2) return;
  run.look_planned = true;
  Plan(run.resumed + edge - run.done, Event::Kind::kEdge, job);
}

FairQueue::Preemption Simulation::Ask(size_t job, double done, double away) {
  const Run& run = runs_[job];
  if (run.rule.Ask(absl::Seconds(away)) != PreemptionRule::Verdict::kMay) {
    return FairQueue::Preemption::kNone;
  }
  FairQueue& queue = WorkerOf(job).queue;
  queue.Charge(job, absl::Seconds(done));
  const uint64_t key = job;
  return queue.MayPreempt({&key, 1}, absl::Seconds(now_ + run.length - done));
}

void Simulation::ComeToEdge(size_t job) {
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
  run.yielded_for = now_;
  ++run.stretch;
  StartNext(worker_index);
}

void Simulation::ReturnTo(size_t job) {
  Run& run = runs_[job];
  const size_t worker_index = static_cast<size_t>(run.worker);
  const FairQueue::Preemption asked =
      Ask(job, run.done, now_ - run.yielded_for);
  if (FairQueue::Yields(asked)) {
    return StartNext(worker_index);
  }
  run.rule.NoteYield();
  ++result_.preemptions;
  GoOn(job);
  Look(worker_index, /*not_before=*/0);
}

void Simulation::Bill(size_t job, double seconds) {
  SimulatedWorker& worker = WorkerOf(job);
  Decay(&worker);
  worker.busy_share += seconds / kWindowSeconds;
  worker.busy_seconds += seconds;
  result_.cost +=
      seconds *
      trace_.workers[static_cast<size_t>(runs_[job].worker)].price_per_second;
  result_.device_seconds[trace_.jobs[job].tenant] += seconds;
  line_.Charge(TenantOf(job).name, seconds, Now());
}

void Simulation::FinishOne(size_t job) {
  Run& run = runs_[job];
  const size_t worker_index = static_cast<size_t>(run.worker);
  SimulatedWorker& worker = *workers_[worker_index];
  const double took = run.length;
  run.end = {JobEnd::Outcome::kFinished, now_};
  worker.turns.pop_back();
  worker.queue.Done(job, absl::Seconds(took), std::nullopt);
  CloseCredit(job, took);
  LeaveWorker(job);
  if (worker.in_service.has_value() && worker.in_service->key == job) {
    worker.in_service.reset();
  }
  if (trace_.jobs[job].has_deadline()) {
    worker.run_times.Note(ProgramOf(trace_.jobs[job]),
                          absl::Seconds(took - run.transfer), Now());
  }
  Bill(job, took);
  ++result_.finished;
  if (worker.turns.empty()) {
    StartNext(worker_index);
  } else {
    ReturnTo(worker.turns.back());
  }
  Publish(worker_index);
  Retry();
}

void Simulation::Decay(SimulatedWorker* worker) {
  worker->busy_share *= std::exp((worker->busy_time - now_) / kWindowSeconds);
  worker->busy_time = now_;
}

void Simulation::Publish(size_t worker_index) {
  SimulatedWorker& worker = *workers_[worker_index];
  Decay(&worker);
  fleet_.Update(trace_.workers[worker_index].id, [&](WorkerFacts* facts) {
    facts->available_bytes = worker.memory.available_bytes();
    facts->queued_seconds = std::max(worker.queued_seconds, 0.0);
    facts->busy_share = worker.busy_share;
  });
}

}  // namespace djinn::scheduler
