// Applies memory quotas to jobs: waiting, borrowing, reclaiming.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "scheduler/quota/room.h"
#include "scheduler/quota/victims.h"
#include "scheduler/simulator/simulation.h"

namespace djinn::scheduler::simulation {

QuotaVerdict CheckQuota(State& s, size_t job) {
  const std::string& tenant = TenantOf(s, job).name;
  const Amounts& asked = s.quotas.asked(s.trace.jobs[job].tenant);
  const auto breach = s.quotas.tree().Check(tenant, asked);
  if (!breach.has_value() ||
      s.quotas.tree().Reclaim(tenant, asked).has_value()) {
    return QuotaVerdict::kMay;
  }
  return breach->may_wait ? QuotaVerdict::kWaits : QuotaVerdict::kNever;
}

void WaitForQuota(State& s, size_t job) {
  Run& run = s.runs[job];
  run.waits_for_room = false;
  if (!run.quota_asked.has_value()) run.quota_asked = s.now;
  JoinLine(s, job);
}

void EndQuotaWait(State& s, size_t job) {
  Run& run = s.runs[job];
  if (!run.quota_asked.has_value()) return;
  TenantResult& of = s.tenants[s.trace.jobs[job].tenant];
  // A job that waits again counts once.
  if (!run.waited_for_quota) ++of.waited_for_quota;
  run.waited_for_quota = true;
  of.quota_wait_seconds += s.now - *run.quota_asked;
  run.quota_asked.reset();
}

void RefuseByQuota(State& s, size_t job) {
  EndQuotaWait(s, job);
  ++s.tenants[s.trace.jobs[job].tenant].refused_by_quota;
}

void PutReclaimOff(State& s, size_t job) {
  s.runs[job].next_reclaim = s.now + absl::ToDoubleSeconds(kReclaimRetry);
  PlanReclaim(s, job);
}

bool MayReclaim(State& s, size_t job) {
  if (s.now >= s.runs[job].next_reclaim) return true;
  PlanReclaim(s, job);
  return false;
}

void PlanReclaim(State& s, size_t job) {
  // One event serves all jobs; those that are not due then plan the next one.
  if (s.reclaim_planned) return;
  s.reclaim_planned = true;
  Plan(s, s.runs[job].next_reclaim, Event::Kind::kReclaim, /*job=*/0);
}

std::vector<Victim> VictimsOf(State& s, const std::string& name) {
  std::vector<Victim> victims;
  for (const size_t job : s.placed[s.tenant_index.at(name)]) {
    const Run& run = s.runs[job];
    Victim victim;
    victim.tenant = name;
    victim.session_id = absl::StrCat(job);
    victim.worker_id = s.trace.workers[static_cast<size_t>(run.worker)].id;
    victim.lost = absl::Seconds(UsedBy(s, job));
    victim.quota = s.quotas.asked(s.trace.jobs[job].tenant);
    victim.content_bytes = s.trace.jobs[job].state_bytes;
    const double age = s.now - run.placed;
    victim.rank = {age < s.trace.reclaim_spares_for_seconds,
                   static_cast<int>(s.trace.jobs[job].class_at_worker()),
                   victim.lost, absl::Seconds(age)};
    victims.push_back(std::move(victim));
  }
  return victims;
}

bool ReclaimQuota(State& s, size_t job) {
  const std::string& tenant = TenantOf(s, job).name;
  const Amounts& asked = s.quotas.asked(s.trace.jobs[job].tenant);
  if (!s.quotas.tree().Check(tenant, asked).has_value()) return true;
  if (!MayReclaim(s, job)) return false;
  const ChosenVictims chosen = ChooseVictims(
      [&](const ReclaimLosses::Allowance& allowance) {
        return VictimsForQuota(
            tenant, asked,
            [&s](const std::string& from) { return VictimsOf(s, from); },
            allowance, &s.quotas.tree());
      },
      &s.quotas.losses(), Now(s));
  if (!chosen.put_off.empty()) PutReclaimOff(s, job);
  if (chosen.victims.empty()) return false;
  Evict(s, chosen.victims);
  return true;
}

void ReclaimRoom(State& s, size_t job, const Request& request) {
  if (s.quotas.empty() || !MayReclaim(s, job)) return;
  const std::string& tenant = TenantOf(s, job).name;
  const Amounts asked = MemoryOf(s.quotas.asked(s.trace.jobs[job].tenant));
  VictimsByWorker by_worker;
  for (const SimulatedTenant& other : s.trace.tenants) {
    if (!s.quotas.tree().MayTakeBack(tenant, other.name, asked)) continue;
    for (Victim& victim : VictimsOf(s, other.name)) {
      std::vector<Victim>& there = by_worker[victim.worker_id];
      there.push_back(std::move(victim));
    }
  }
  if (by_worker.empty()) return;
  const ChosenVictims chosen = ChooseVictims(
      [&](const ReclaimLosses::Allowance& allowance) {
        return VictimsAtOneWorker(
            tenant, asked, request, by_worker, s.fleet, s.factors,
            [&s](const std::string& worker_id) {
              return s.workers[s.index.at(worker_id)]->shared_bytes();
            },
            allowance, &s.quotas.tree());
      },
      &s.quotas.losses(), Now(s));
  PutReclaimOff(s, job);
  if (chosen.victims.empty()) return;
  s.line.reservation.Keep(s.runs[job].ticket, chosen.victims.front().worker_id);
  Evict(s, chosen.victims);
}

void Evict(State& s, const std::vector<Victim>& victims) {
  for (const Victim& victim : victims) {
    size_t job = 0;
    if (!absl::SimpleAtoi(victim.session_id, &job)) continue;
    TakeBack(s, job);
  }
  NoteLosses(victims, &s.quotas.losses(), Now(s));
  NoteFreed(s);
}

void TakeBack(State& s, size_t job) {
  Run& run = s.runs[job];
  const size_t worker_index = static_cast<size_t>(run.worker);
  SimulatedWorker& worker = *s.workers[worker_index];
  const double used = UsedBy(s, job);
  TenantResult& of = s.tenants[s.trace.jobs[job].tenant];
  ++of.reclaimed;
  of.lost_device_seconds += used;
  const bool runs = !worker.turns.empty() && worker.turns.back() == job;
  if (run.begun) {
    std::erase(worker.turns, job);
    worker.queue.Done(job, absl::Seconds(used), std::nullopt);
    Bill(s, job, used);
  }
  std::erase(worker.refusals, job);
  if (worker.in_service.has_value() && worker.in_service->key == job) {
    worker.in_service.reset();
  }
  CloseCredit(s, job, used);
  LeaveWorker(s, job);
  s.result.workers[job] = -1;
  run.begun = false;
  run.done = 0;
  run.rule = PreemptionRule();
  run.look_planned = false;
  ++run.stretch;
  // The job asks for another worker at once.
  run.asked = s.now;
  run.returns = run.reclaims < kMaxReturns;
  if (run.returns) ++run.reclaims;
  run.next_reclaim = 0;
  JoinLine(s, job);
  if (runs && worker.turns.empty()) {
    StartNext(s, worker_index);
  } else if (runs) {
    ReturnTo(s, worker.turns.back());
  }
  Publish(s, worker_index);
}

}  // namespace djinn::scheduler::simulation
