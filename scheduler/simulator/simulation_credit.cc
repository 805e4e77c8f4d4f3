// Grants device time with a rate to jobs, as the credits of leases do.
//
// A job waits at its worker until it gets a grant. Use beyond the grant is
// owed. The unused rest returns to the tenant, because a real session would
// stay and use it.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "scheduler/quota/rate_budget.h"
#include "scheduler/simulator/simulation.h"

namespace djinn::scheduler::simulation {

double UsedBy(State& s, size_t job) {
  const Run& run = s.runs[job];
  if (!run.begun) return 0;
  const SimulatedWorker& worker = WorkerOf(s, job);
  const bool runs = !worker.turns.empty() && worker.turns.back() == job;
  return run.done + (runs ? s.now - run.resumed : 0);
}

bool TakeCredit(State& s, size_t job) {
  Run& run = s.runs[job];
  run.granted = s.quotas.Grant(s.trace.jobs[job].tenant);
  return run.granted > 0;
}

void OpenCredit(State& s, size_t job) {
  const size_t tenant = s.trace.jobs[job].tenant;
  if (!s.quotas.rated(tenant)) return Admit(s, job);
  // The job may have used device time on an earlier worker.
  s.runs[job].billed = 0;
  if (s.quotas.RatesAreDue(Now(s))) AdvanceRates(s);
  if (TakeCredit(s, job)) {
    Admit(s, job);
  } else {
    s.quotas.NoteWaiting(tenant, Now(s));
    s.runs[job].credit_asked = s.now;
    s.without_credit.push_back(job);
  }
  PlanRates(s);
}

void SettleCredit(State& s, size_t job, double used) {
  Run& run = s.runs[job];
  const size_t tenant = s.trace.jobs[job].tenant;
  s.quotas.NoteUsed(tenant, used - run.billed);
  run.billed = used;
  if (used > run.granted) {
    s.quotas.Owe(tenant, used - run.granted);
    run.granted = used;
  }
}

void EndCreditWait(State& s, size_t job) {
  s.tenants[s.trace.jobs[job].tenant].credit_wait_seconds +=
      s.now - s.runs[job].credit_asked;
}

void CloseCredit(State& s, size_t job, double used) {
  const size_t tenant = s.trace.jobs[job].tenant;
  if (!s.quotas.rated(tenant)) return;
  if (std::erase(s.without_credit, job) > 0) EndCreditWait(s, job);
  SettleCredit(s, job, used);
  s.quotas.Owe(tenant, used - s.runs[job].granted);
  s.runs[job].granted = 0;
}

void AdvanceRates(State& s) {
  for (size_t tenant = 0; tenant < s.placed.size(); ++tenant) {
    if (!s.quotas.rated(tenant)) continue;
    for (const size_t job : s.placed[tenant])
      SettleCredit(s, job, UsedBy(s, job));
  }
  for (const size_t job : s.without_credit) {
    s.quotas.NoteWaiting(s.trace.jobs[job].tenant, Now(s));
  }
  s.quotas.AdvanceRates(Now(s));
  std::vector<size_t> admitted;
  std::erase_if(s.without_credit, [&](size_t job) {
    if (!TakeCredit(s, job)) return false;
    admitted.push_back(job);
    return true;
  });
  for (const size_t job : admitted) {
    EndCreditWait(s, job);
    Admit(s, job);
    Publish(s, static_cast<size_t>(s.runs[job].worker));
  }
}

void PlanRates(State& s) {
  if (s.rates_planned) return;
  for (size_t tenant = 0; tenant < s.placed.size(); ++tenant) {
    if (s.placed[tenant].empty() || !s.quotas.rated(tenant)) continue;
    s.rates_planned = true;
    Plan(s, s.now + absl::ToDoubleSeconds(RateBudget::kInterval),
         Event::Kind::kRates, /*job=*/0);
    return;
  }
}

}  // namespace djinn::scheduler::simulation
