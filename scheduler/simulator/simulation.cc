#include "scheduler/simulator/simulation.h"

#include <utility>
#include <vector>

#include "scheduler/simulator/generator.h"

namespace djinn::scheduler::simulation {

State::State(const Trace& trace, const Policy& policy,
             const SimulationOptions& options)
    : trace(trace),
      policy(policy),
      options(options),
      draws(trace.seed),
      noise(trace.seed + 1),
      runs(trace.jobs.size()),
      line(absl::Seconds(trace.line_patience_seconds)),
      quotas(trace),
      placed(trace.tenants.size()),
      tenants(trace.tenants.size()) {
  for (size_t i = 0; i < trace.tenants.size(); ++i) {
    const SimulatedTenant& tenant = trace.tenants[i];
    line.queue.SetWeight(tenant.name, tenant.weight);
    tenant_index[tenant.name] = i;
  }
  for (size_t i = 0; i < trace.workers.size(); ++i) {
    WorkerFacts facts = trace.workers[i];
    facts.available_bytes = facts.memory_bytes;
    index[facts.id] = i;
    workers.push_back(std::make_unique<SimulatedWorker>(facts.memory_bytes));
    fleet.Put(std::move(facts));
  }
  result.device_seconds.resize(trace.tenants.size());
  result.workers.assign(trace.jobs.size(), -1);
}

void Plan(State& s, double seconds, Event::Kind kind, size_t job) {
  s.events.push({seconds, s.events_planned++, kind, job, s.runs[job].stretch});
}

namespace {

// Handles the earliest event; does nothing if it is stale.
void HandleOne(State& s) {
  const Event event = s.events.top();
  s.events.pop();
  const Run& run = s.runs[event.job];
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
  s.now = event.seconds;
  switch (event.kind) {
    case Event::Kind::kEnd:
      return FinishOne(s, event.job);
    case Event::Kind::kEdge:
      return ComeToEdge(s, event.job);
    case Event::Kind::kExpired:
      if (run.quota_asked.has_value()) RefuseByQuota(s, event.job);
      LeaveLine(s, event.job);
      return PlanTick(s);
    case Event::Kind::kTick:
      s.line.tick_planned = false;
      return RetrySome(s);
    case Event::Kind::kImpatient:
      return RetrySome(s);
    case Event::Kind::kRates:
      s.rates_planned = false;
      AdvanceRates(s);
      return PlanRates(s);
    case Event::Kind::kReclaim:
      s.reclaim_planned = false;
      return RetrySome(s);
  }
}

SimulationResult Finish(State& s) {
  std::vector<JobEnd> ends;
  for (const Run& run : s.runs) ends.push_back(run.end);
  std::vector<double> busy_seconds;
  for (const auto& worker : s.workers) {
    busy_seconds.push_back(worker->busy_seconds);
  }
  SumUp(s.trace, ends, busy_seconds, &s.result);
  if (!s.quotas.empty()) {
    const std::vector<SimulatedQuotas::Loans>& loans = s.quotas.Sum(Now(s));
    for (size_t i = 0; i < s.tenants.size(); ++i) s.tenants[i].loans = loans[i];
    CountTenants(s.trace, ends, &s.tenants);
    s.result.tenants = std::move(s.tenants);
  }
  return std::move(s.result);
}

}  // namespace

SimulationResult Play(State& s) {
  for (size_t job = 0; job < s.trace.jobs.size(); ++job) {
    const double arrival = s.trace.jobs[job].arrival_seconds;
    while (!s.events.empty() && s.events.top().seconds <= arrival) HandleOne(s);
    s.now = arrival;
    s.runs[job].asked = arrival;
    // Drawn for every job, so that all policies see the same noise.
    s.runs[job].factor = DrawFactor(&s.noise, s.trace.noise);
    Arrive(s, job);
  }
  while (!s.events.empty()) HandleOne(s);
  return Finish(s);
}

}  // namespace djinn::scheduler::simulation
