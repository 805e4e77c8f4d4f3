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

namespace djinn::scheduler {

double Simulation::UsedBy(size_t job) {
  const Run& run = runs_[job];
  if (!run.begun) return 0;
  const SimulatedWorker& worker = WorkerOf(job);
  const bool runs = !worker.turns.empty() && worker.turns.back() == job;
  return run.done + (runs ? now_ - run.resumed : 0);
}

bool Simulation::TakeCredit(size_t job) {
  Run& run = runs_[job];
  run.granted = quotas_.Grant(trace_.jobs[job].tenant);
  return run.granted > 0;
}

void Simulation::OpenCredit(size_t job) {
  const size_t tenant = trace_.jobs[job].tenant;
  if (!quotas_.rated(tenant)) return Admit(job);
  // The job may have used device time on an earlier worker.
  runs_[job].billed = 0;
  if (quotas_.RatesAreDue(Now())) AdvanceRates();
  if (TakeCredit(job)) {
    Admit(job);
  } else {
    quotas_.NoteWaiting(tenant, Now());
    runs_[job].credit_asked = now_;
    without_credit_.push_back(job);
  }
  PlanRates();
}

void Simulation::SettleCredit(size_t job, double used) {
  Run& run = runs_[job];
  const size_t tenant = trace_.jobs[job].tenant;
  quotas_.NoteUsed(tenant, used - run.billed);
  run.billed = used;
  if (used > run.granted) {
    quotas_.Owe(tenant, used - run.granted);
    run.granted = used;
  }
}

void Simulation::EndCreditWait(size_t job) {
  tenants_[trace_.jobs[job].tenant].credit_wait_seconds +=
      now_ - runs_[job].credit_asked;
}

void Simulation::CloseCredit(size_t job, double used) {
  const size_t tenant = trace_.jobs[job].tenant;
  if (!quotas_.rated(tenant)) return;
  if (std::erase(without_credit_, job) > 0) EndCreditWait(job);
  SettleCredit(job, used);
  quotas_.Owe(tenant, used - runs_[job].granted);
  runs_[job].granted = 0;
}

void Simulation::AdvanceRates() {
  for (size_t tenant = 0; tenant < placed_.size(); ++tenant) {
    if (!quotas_.rated(tenant)) continue;
    for (const size_t job : placed_[tenant]) SettleCredit(job, UsedBy(job));
  }
  for (const size_t job : without_credit_) {
    quotas_.NoteWaiting(trace_.jobs[job].tenant, Now());
  }
  quotas_.AdvanceRates(Now());
  std::vector<size_t> admitted;
  std::erase_if(without_credit_, [&](size_t job) {
    if (!TakeCredit(job)) return false;
    admitted.push_back(job);
    return true;
  });
  for (const size_t job : admitted) {
    EndCreditWait(job);
    Admit(job);
    Publish(static_cast<size_t>(runs_[job].worker));
  }
}

void Simulation::PlanRates() {
  if (rates_planned_) return;
  for (size_t tenant = 0; tenant < placed_.size(); ++tenant) {
    if (placed_[tenant].empty() || !quotas_.rated(tenant)) continue;
    rates_planned_ = true;
    Plan(now_ + absl::ToDoubleSeconds(RateBudget::kInterval),
         Event::Kind::kRates, /*job=*/0);
    return;
  }
}

}  // namespace djinn::scheduler
