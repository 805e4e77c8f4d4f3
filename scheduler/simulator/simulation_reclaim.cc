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

namespace djinn::scheduler {

Simulation::QuotaVerdict Simulation::CheckQuota(size_t job) {
  const std::string& tenant = TenantOf(job).name;
  const Amounts& asked = quotas_.asked(trace_.jobs[job].tenant);
  const auto breach = quotas_.tree().Check(tenant, asked);
  if (!breach.has_value() ||
      quotas_.tree().Reclaim(tenant, asked).has_value()) {
    return QuotaVerdict::kMay;
  }
  return breach->may_wait ? QuotaVerdict::kWaits : QuotaVerdict::kNever;
}

void Simulation::WaitForQuota(size_t job) {
  Run& run = runs_[job];
  run.waits_for_room = false;
  if (!run.quota_asked.has_value()) run.quota_asked = now_;
  JoinLine(job);
}

void Simulation::EndQuotaWait(size_t job) {
  Run& run = runs_[job];
  if (!run.quota_asked.has_value()) return;
  TenantResult& of = tenants_[trace_.jobs[job].tenant];
  // A job that waits again counts once.
  if (!run.waited_for_quota) ++of.waited_for_quota;
  run.waited_for_quota = true;
  of.quota_wait_seconds += now_ - *run.quota_asked;
  run.quota_asked.reset();
}

void Simulation::RefuseByQuota(size_t job) {
  EndQuotaWait(job);
  ++tenants_[trace_.jobs[job].tenant].refused_by_quota;
}

void Simulation::PutReclaimOff(size_t job) {
  runs_[job].next_reclaim = now_ + absl::ToDoubleSeconds(kReclaimRetry);
  PlanReclaim(job);
}

bool Simulation::MayReclaim(size_t job) {
  if (now_ >= runs_[job].next_reclaim) return true;
  PlanReclaim(job);
  return false;
}

void Simulation::PlanReclaim(size_t job) {
  // One event serves all jobs; those that are not due then plan the next one.
  if (reclaim_planned_) return;
  reclaim_planned_ = true;
  Plan(runs_[job].next_reclaim, Event::Kind::kReclaim, /*job=*/0);
}

std::vector<Victim> Simulation::VictimsOf(const std::string& name) {
  std::vector<Victim> victims;
  for (const size_t job : placed_[tenant_index_.at(name)]) {
    const Run& run = runs_[job];
    Victim victim;
    victim.tenant = name;
    victim.session_id = absl::StrCat(job);
    victim.worker_id = trace_.workers[static_cast<size_t>(run.worker)].id;
    victim.lost = absl::Seconds(UsedBy(job));
    victim.quota = quotas_.asked(trace_.jobs[job].tenant);
    victim.content_bytes = trace_.jobs[job].state_bytes;
    const double age = now_ - run.placed;
    victim.rank = {age < trace_.reclaim_spares_for_seconds,
                   static_cast<int>(trace_.jobs[job].class_at_worker()),
                   victim.lost, absl::Seconds(age)};
    victims.push_back(std::move(victim));
  }
  return victims;
}

bool Simulation::ReclaimQuota(size_t job) {
  const std::string& tenant = TenantOf(job).name;
  const Amounts& asked = quotas_.asked(trace_.jobs[job].tenant);
  if (!quotas_.tree().Check(tenant, asked).has_value()) return true;
  if (!MayReclaim(job)) return false;
  const ChosenVictims chosen = ChooseVictims(
      [&](const ReclaimLosses::Allowance& allowance) {
        return VictimsForQuota(
            tenant, asked,
            [this](const std::string& from) { return VictimsOf(from); },
            allowance, &quotas_.tree());
      },
      &quotas_.losses(), Now());
  if (!chosen.put_off.empty()) PutReclaimOff(job);
  if (chosen.victims.empty()) return false;
  Evict(chosen.victims);
  return true;
}

void Simulation::ReclaimRoom(size_t job, const Request& request) {
  if (quotas_.empty() || !MayReclaim(job)) return;
  const std::string& tenant = TenantOf(job).name;
  const Amounts asked = MemoryOf(quotas_.asked(trace_.jobs[job].tenant));
  VictimsByWorker by_worker;
  for (const SimulatedTenant& other : trace_.tenants) {
    if (!quotas_.tree().MayTakeBack(tenant, other.name, asked)) continue;
    for (Victim& victim : VictimsOf(other.name)) {
      std::vector<Victim>& there = by_worker[victim.worker_id];
      there.push_back(std::move(victim));
    }
  }
  if (by_worker.empty()) return;
  const ChosenVictims chosen = ChooseVictims(
      [&](const ReclaimLosses::Allowance& allowance) {
        return VictimsAtOneWorker(
            tenant, asked, request, by_worker, fleet_, factors_,
            [this](const std::string& worker_id) {
              return workers_[index_.at(worker_id)]->shared_bytes();
            },
            allowance, &quotas_.tree());
      },
      &quotas_.losses(), Now());
  PutReclaimOff(job);
  if (chosen.victims.empty()) return;
  reservation_.Keep(runs_[job].ticket, chosen.victims.front().worker_id);
  Evict(chosen.victims);
}

void Simulation::Evict(const std::vector<Victim>& victims) {
  for (const Victim& victim : victims) {
    size_t job = 0;
    if (!absl::SimpleAtoi(victim.session_id, &job)) continue;
    TakeBack(job);
  }
  NoteLosses(victims, &quotas_.losses(), Now());
  NoteFreed();
}

void Simulation::TakeBack(size_t job) {
  Run& run = runs_[job];
  const size_t worker_index = static_cast<size_t>(run.worker);
  SimulatedWorker& worker = *workers_[worker_index];
  const double used = UsedBy(job);
  TenantResult& of = tenants_[trace_.jobs[job].tenant];
  ++of.reclaimed;
  of.lost_device_seconds += used;
  const bool runs = !worker.turns.empty() && worker.turns.back() == job;
  if (run.begun) {
    std::erase(worker.turns, job);
    worker.queue.Done(job, absl::Seconds(used), std::nullopt);
    Bill(job, used);
  }
  std::erase(worker.refusals, job);
  if (worker.in_service.has_value() && worker.in_service->key == job) {
    worker.in_service.reset();
  }
  CloseCredit(job, used);
  LeaveWorker(job);
  result_.workers[job] = -1;
  run.begun = false;
  run.done = 0;
  run.rule = PreemptionRule();
  run.look_planned = false;
  ++run.stretch;
  // The job asks for another worker at once.
  run.asked = now_;
  run.returns = run.reclaims < kMaxReturns;
  if (run.returns) ++run.reclaims;
  run.next_reclaim = 0;
  JoinLine(job);
  if (runs && worker.turns.empty()) {
    StartNext(worker_index);
  } else if (runs) {
    ReturnTo(worker.turns.back());
  }
  Publish(worker_index);
}

}  // namespace djinn::scheduler
