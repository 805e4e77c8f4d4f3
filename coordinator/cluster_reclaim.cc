// Who gives back what is borrowed: quota, and the room at a worker that goes
// with it.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/error.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "common/saturating.h"
#include "coordinator/cluster.h"
#include "scheduler/quota/room.h"

namespace djinn::coordinator {
namespace {

using scheduler::Amounts;
using scheduler::kMaxReturns;
using scheduler::kReclaimRetry;
using scheduler::ReclaimLosses;
using scheduler::Victim;

}  // namespace

v1::PriorityClass Cluster::ClassGivingWay(const Session& session) const {
  const auto tenant = tenants_->Find(session.tenant);
  const v1::PriorityClass declared =
      tenant == nullptr ? session.urgency.priority_class()
                        : Allowed(*tenant, session.urgency).priority_class();
  // As workers rank its runs.
  return !IsDeclared(declared) && session.phase == semantics::Phase::kTraining
             ? v1::PRIORITY_CLASS_BATCH
             : EffectiveClass(declared);
}

std::vector<Victim> Cluster::VictimsOf(const std::string& tenant) {
  const absl::Duration now = clock_->Monotonic();
  std::map<std::pair<std::string, std::string>, Victim> found;
  for (const Lease* lease : leases_.OfTenant(tenant)) {
    // One that a virtual device goes to holds nothing that could be reclaimed,
    // as long as it can stay where it is.
    if (lease->migrating() && leases_.Find(lease->migrates_from) != nullptr) {
      continue;
    }
    found.try_emplace({lease->session_id, lease->worker_id});
  }
  std::vector<Victim> victims;
  for (auto& [place, victim] : found) {
    std::tie(victim.session_id, victim.worker_id) = place;
    victim.tenant = tenant;
    absl::Duration age;
    for (const Lease* lease : leases_.OfSession(victim.session_id)) {
      if (lease->worker_id != victim.worker_id) continue;
      age = std::max(age, now - lease->created);
      victim.lost += LostWith(*lease);
      victim.bytes = SaturatingSum(victim.bytes, PromisedBytes(*lease));
      const auto give = [&](const Lease& one) {
        for (size_t i = 0; i < scheduler::kResources; ++i) {
          victim.quota[i] += one.quota[i];
        }
      };
      give(*lease);
      const Lease* const to = leases_.FindMigration(*lease);
      if (to != nullptr && to->worker_id != victim.worker_id) give(*to);
    }
    victim.rank = {age < config_.reclaim_spares_for,
                   ClassGivingWay(*sessions_.Find(victim.session_id)),
                   victim.lost, age};
    const Worker& worker = *workers_.Find(victim.worker_id);
    for (const auto& [lease_id, held] : worker.held) {
      if (held.session_id != victim.session_id) continue;
      const uint64_t contents =
          std::min(held.use.contents().size_bytes(), held.storage_bytes);
      victim.bytes = SaturatingSum(victim.bytes, held.storage_bytes - contents);
      victim.content_bytes = SaturatingSum(victim.content_bytes, contents);
    }
    victims.push_back(std::move(victim));
  }
  return victims;
}

absl::Duration Cluster::LostWith(const Lease& lease) const {
  const CreditLedger::Account* const account = ledger_.Find(lease.id);
  return account == nullptr ? absl::ZeroDuration()
                            : account->billed.device_time;
}

void Cluster::Evict(const std::vector<Victim>& victims, const Tenant& preemptor,
                    Wakes* wakes) {
  // A session that loses several workers at once returns once.
  std::set<std::string> returning;
  for (const Victim& victim : victims) {
    Session* const session = sessions_.Find(victim.session_id);
    const bool returns =
        session->returns < kMaxReturns || returning.contains(victim.session_id);
    const bool lost_device = Evict(victim, preemptor, returns, wakes);
    if (returns && lost_device && returning.insert(victim.session_id).second) {
      ++session->returns;
    }
  }
  scheduler::NoteLosses(victims, &losses_, clock_->Monotonic());
}

bool Cluster::Evict(const Victim& victim, const Tenant& preemptor, bool returns,
                    Wakes* wakes) {
  metrics_.preemptions.Add({metrics_.tenants.For(preemptor.name),
                            metrics_.tenants.For(victim.tenant),
                            "reclaim_nominal"});
  lost_device_seconds_ += absl::ToDoubleSeconds(victim.lost);
  log::Warning("quota reclaimed", {{"tenant", preemptor.name},
                                   {"from", victim.tenant},
                                   {"session", log::ShortId(victim.session_id)},
                                   {"worker", victim.worker_id},
                                   {"lost", victim.lost}});
  Session* const session = sessions_.Find(victim.session_id);
  bool lost_device = false;
  // All that the session has there.
  std::vector<std::string> ends;
  for (const Lease* lease : leases_.OfSession(victim.session_id)) {
    if (lease->worker_id == victim.worker_id) ends.push_back(lease->id);
  }
  for (const std::string& lease_id : ends) {
    Lease* const lease = leases_.Find(lease_id);
    if (lease == nullptr) continue;
    if (!lease->migrating()) {
      lost_device = true;
      if (returns) session->returning.insert(lease->device);
    }
    // Its way elsewhere ends with it: what it held there would be borrowed on.
    if (Lease* const to = leases_.FindMigration(*lease)) {
      DropMigration(
          to,
          MakeError(absl::StatusCode::kResourceExhausted, "QUOTA_RECLAIMED",
                    "tenant " + victim.tenant + " gives back what it borrowed"),
          wakes);
    }
    EndLease(lease, "QUOTA_RECLAIMED", wakes, preemptor.name);
  }
  Drop(victim.session_id, workers_.Find(victim.worker_id), wakes);
  return lost_device;
}

std::vector<Victim> Cluster::ChooseVictims(
    absl::FunctionRef<std::vector<Victim>(const ReclaimLosses::Allowance&)>
        choose,
    PendingLease* pending) {
  const absl::Duration now = clock_->Monotonic();
  scheduler::ChosenVictims chosen =
      scheduler::ChooseVictims(choose, &losses_, now);
  if (!chosen.put_off.empty()) {
    pending->put_off = absl::StrCat(
        "time: by what others took back, tenant ", chosen.put_off, " has lost ",
        absl::FormatDuration(losses_.Lost(chosen.put_off, now)),
        " of device time in the last minute, of ",
        absl::FormatDuration(losses_.limit()), " that it may lose");
    pending->next_reclaim = now + kReclaimRetry;
  }
  return std::move(chosen.victims);
}

absl::Status Cluster::ReclaimQuota(const Tenant& tenant, PendingLease* pending,
                                   Wakes* wakes) {
  const Amounts asked = LeaseQuota(tenant);
  const auto breach = quotas_.Check(tenant.name, asked);
  if (!breach.has_value()) return absl::OkStatus();
  std::vector<Victim> victims;
  if (pending->put_off.empty()) {
    victims = ChooseVictims(
        [&](const ReclaimLosses::Allowance& allowance)
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
              return scheduler::VictimsForQuota(
                  tenant.name, asked,
                  [&](const std::string& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                      mu_) { return VictimsOf(from); },
                  allowance, &quotas_);
            },
        pending);
  }
  if (victims.empty()) return QuotaExceeded(tenant, *breach);
  Evict(victims, tenant, wakes);
  return absl::OkStatus();
}

bool Cluster::RoomIsOnItsWay(const PendingLease& pending) {
  const Worker* const worker = workers_.Find(pending.room.worker_id);
  if (worker == nullptr || !worker->usable()) return false;
  return std::any_of(pending.room.session_ids.begin(),
                     pending.room.session_ids.end(),
                     [&](const std::string& session_id) {
                       return worker->drops.contains(session_id);
                     });
}

uint64_t Cluster::SharedContents(const Worker& worker) {
  uint64_t all_contents = 0;
  for (const auto& [lease_id, held] : worker.held) {
    all_contents =
        SaturatingSum(all_contents, held.use.contents().size_bytes());
  }
  uint64_t used_contents = 0;
  if (worker.memory.has_value()) {
    used_contents = worker.memory->content_bytes() -
                    std::min(worker.memory->content_bytes(),
                             worker.memory->idle_content_bytes());
  }
  // Several sessions count what they share, each wholly.
  return all_contents - std::min(all_contents, used_contents);
}

void Cluster::ReclaimRoom(MemberId device, const Tenant& tenant,
                          const scheduler::Request& request, Session* session,
                          Wakes* wakes) {
  PendingLease& pending = session->pending.at(device);
  const absl::Duration now = clock_->Monotonic();
  if (RoomIsOnItsWay(pending) || now < pending.next_reclaim ||
      now < next_room_look_) {
    return;
  }
  const Amounts asked = scheduler::MemoryOf(LeaseQuota(tenant));
  const scheduler::Fleet& fleet = FreshFleet();
  scheduler::VictimsByWorker by_worker;
  for (const auto& [name, other] : *tenants_->all()) {
    if (!quotas_.MayTakeBack(tenant.name, name, asked)) continue;
    for (Victim& victim : VictimsOf(name)) {
      std::vector<Victim>& there = by_worker[victim.worker_id];
      there.push_back(std::move(victim));
    }
  }
  const std::vector<Victim> victims = ChooseVictims(
      [&](const ReclaimLosses::Allowance& allowance)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
            return scheduler::VictimsAtOneWorker(
                tenant.name, asked, request, by_worker, fleet, works_.factors(),
                [&](const std::string& worker_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                    mu_) { return SharedContents(*workers_.Find(worker_id)); },
                allowance, &quotas_);
          },
      &pending);
  // Everybody's leases were looked at: no more than a quarter of the time.
  const absl::Duration end = clock_->Monotonic();
  next_room_look_ = end + 3 * (end - now);
  pending.next_reclaim = end + kReclaimRetry;
  if (victims.empty()) return;
  pending.room = {victims.front().worker_id, {}};
  for (const Victim& victim : victims) {
    pending.room.session_ids.push_back(victim.session_id);
  }
  reservation_.Keep(pending.ticket, pending.room.worker_id);
  Evict(victims, tenant, wakes);
}

}  // namespace djinn::coordinator
