#include "scheduler/simulator/simulation.h"

#include <utility>
#include <vector>

#include "scheduler/simulator/generator.h"

namespace djinn::scheduler {

Simulation::Simulation(const Trace& trace, const Policy& policy,
                       const SimulationOptions& options)
    : trace_(trace),
      policy_(policy),
      options_(options),
      draws_(trace.seed),
      noise_(trace.seed + 1),
      runs_(trace.jobs.size()),
      reservation_(absl::Seconds(trace.line_patience_seconds)),
      quotas_(trace),
      placed_(trace.tenants.size()),
      tenants_(trace.tenants.size()) {
  for (size_t i = 0; i < trace.tenants.size(); ++i) {
    const SimulatedTenant& tenant = trace.tenants[i];
    line_.SetWeight(tenant.name, tenant.weight);
    tenant_index_[tenant.name] = i;
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

SimulationResult Simulation::Play() {
  for (size_t job = 0; job < trace_.jobs.size(); ++job) {
    const double arrival = trace_.jobs[job].arrival_seconds;
    while (!events_.empty() && events_.top().seconds <= arrival) HandleOne();
    now_ = arrival;
    runs_[job].asked = arrival;
    // Drawn for every job, so that all policies see the same noise.
    runs_[job].factor = DrawFactor(&noise_, trace_.noise);
    Arrive(job);
  }
  while (!events_.empty()) HandleOne();
  return Finish();
}

void Simulation::Plan(double seconds, Event::Kind kind, size_t job) {
  events_.push({seconds, events_planned_++, kind, job, runs_[job].stretch});
}

void Simulation::HandleOne() {
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
      // The job may have got a worker and lost it since.
      if (run.ticket == 0 || event.stretch != run.stretch) return;
      break;
    case Event::Kind::kTick:
    case Event::Kind::kRates:
    case Event::Kind::kReclaim:
      break;
  }
  now_ = event.seconds;
  switch (event.kind) {
    case Event::Kind::kEnd:
      return FinishOne(event.job);
    case Event::Kind::kEdge:
      return ComeToEdge(event.job);
    case Event::Kind::kExpired:
      if (run.quota_asked.has_value()) RefuseByQuota(event.job);
      LeaveLine(event.job);
      return PlanTick();
    case Event::Kind::kTick:
      tick_planned_ = false;
      return RetrySome();
    case Event::Kind::kImpatient:
      return RetrySome();
    case Event::Kind::kRates:
      rates_planned_ = false;
      AdvanceRates();
      return PlanRates();
    case Event::Kind::kReclaim:
      reclaim_planned_ = false;
      return RetrySome();
  }
}

SimulationResult Simulation::Finish() {
  std::vector<JobEnd> ends;
  for (const Run& run : runs_) ends.push_back(run.end);
  std::vector<double> busy_seconds;
  for (const auto& worker : workers_) {
    busy_seconds.push_back(worker->busy_seconds);
  }
  SumUp(trace_, ends, busy_seconds, &result_);
  if (!quotas_.empty()) {
    const std::vector<SimulatedQuotas::Loans>& loans = quotas_.Sum(Now());
    for (size_t i = 0; i < tenants_.size(); ++i) tenants_[i].loans = loans[i];
    CountTenants(trace_, ends, &tenants_);
    result_.tenants = std::move(tenants_);
  }
  return std::move(result_);
}

}  // namespace djinn::scheduler
