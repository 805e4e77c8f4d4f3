#include "coordinator/cluster/quota/reclaim.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/saturating.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "coordinator/cluster/leases/credits.h"
#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/lease.pb.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/quota/quota_tree.h"
#include "scheduler/quota/reclaim_losses.h"
#include "scheduler/quota/room.h"
#include "scheduler/quota/victims.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator::reclaim {
namespace {

using scheduler::Amounts;
using scheduler::kMaxReturns;
using scheduler::kReclaimRetry;
using scheduler::ReclaimLosses;
using scheduler::Victim;

// Returns the class by which workers rank the session's runs. Sessions of low
// priority lose their leases first.
v1::PriorityClass ClassGivingWay(const ClusterState& state,
                                 const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const auto tenant = state.tenants->Find(session.tenant);
  const v1::PriorityClass declared =
      AllowedUrgency(tenant.get(), session.urgency).priority_class();
  return !IsDeclared(declared) &&
                 session.work.phase == semantics::Phase::kTraining
             ? v1::PRIORITY_CLASS_BATCH
             : EffectiveClass(declared);
}

// Returns the tenant's sessions at each worker, with what ending their leases
// there would give back.
std::vector<Victim> VictimsOf(ClusterState& state, const std::string& tenant)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Duration now = state.clock->Monotonic();
  std::map<std::pair<std::string, std::string>, Victim> found;
  for (const Lease* lease : state.leases.OfTenant(tenant)) {
    // A lease that a virtual device migrates to holds nothing yet that could be
    // taken back.
    if (lease->migrating() &&
        state.leases.Find(lease->migrates_from) != nullptr) {
      continue;
    }
    found.try_emplace({lease->session_id, lease->worker_id});
  }
  std::vector<Victim> victims;
  for (auto& [place, victim] : found) {
    std::tie(victim.session_id, victim.worker_id) = place;
    victim.tenant = tenant;
    absl::Duration age;
    for (const Lease* lease : state.leases.OfSession(victim.session_id)) {
      if (lease->worker_id != victim.worker_id) continue;
      age = std::max(age, now - lease->created);
      victim.lost += credits::DeviceTimeOf(state, *lease);
      victim.bytes =
          SaturatingSum(victim.bytes, fleet::PromisedBytes(state, *lease));
      const auto give = [&](const Lease& one) {
        for (size_t i = 0; i < scheduler::kResources; ++i) {
          victim.quota[i] += one.quota[i];
        }
      };
      give(*lease);
      const Lease* const to = state.leases.FindMigration(*lease);
      if (to != nullptr && to->worker_id != victim.worker_id) give(*to);
    }
    victim.rank = {
        age < state.config.reclaim_spares_for,
        ClassGivingWay(state, *state.sessions.Find(victim.session_id)),
        victim.lost, age};
    const Worker& worker = *state.workers.Find(victim.worker_id);
    for (const std::string& lease_id : worker.LeasesOf(victim.session_id)) {
      const Worker::Held& held = worker.leases.held.at(lease_id);
      const uint64_t contents =
          std::min(held.use.contents().size_bytes(), held.storage_bytes);
      victim.bytes = SaturatingSum(victim.bytes, held.storage_bytes - contents);
      victim.content_bytes = SaturatingSum(victim.content_bytes, contents);
    }
    victims.push_back(std::move(victim));
  }
  return victims;
}

// Ends the victim's leases at its worker and has the worker drop the session.
// With `returns`, its virtual devices come first among their tenant's requests
// when they ask for another worker. Returns whether a virtual device lost its
// worker; false if all were migrating there.
bool Evict(ClusterState& state, const Victim& victim, const Tenant& preemptor,
           bool returns, Wakes* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  state.metrics.preemptions.Add({state.metrics.tenants.For(preemptor.name),
                                 state.metrics.tenants.For(victim.tenant),
                                 "reclaim_nominal"});
  state.quotas.lost_device_seconds += absl::ToDoubleSeconds(victim.lost);
  log::Warning("quota reclaimed", {{"tenant", preemptor.name},
                                   {"from", victim.tenant},
                                   {"session", log::ShortId(victim.session_id)},
                                   {"worker", victim.worker_id},
                                   {"lost", victim.lost}});
  Session* const session = state.sessions.Find(victim.session_id);
  bool lost_device = false;
  // Ids of the session's leases at the worker.
  std::vector<std::string> ends;
  for (const Lease* lease : state.leases.OfSession(victim.session_id)) {
    if (lease->worker_id == victim.worker_id) ends.push_back(lease->id);
  }
  for (const std::string& lease_id : ends) {
    Lease* const lease = state.leases.Find(lease_id);
    if (lease == nullptr) continue;
    if (!lease->migrating()) {
      lost_device = true;
      if (returns) session->devices.returning.insert(lease->device);
    }
    // Ends the migration as well: otherwise its lease would take over the
    // quota, which would stay borrowed.
    if (Lease* const to = state.leases.FindMigration(*lease)) {
      leases::DropMigration(
          state, to,
          MakeError(absl::StatusCode::kResourceExhausted, "QUOTA_RECLAIMED",
                    "tenant " + victim.tenant + " gives back what it borrowed"),
          wakes);
    }
    leases::End(state, lease, "QUOTA_RECLAIMED", wakes, preemptor.name);
  }
  notifications::Drop(victim.session_id, state.workers.Find(victim.worker_id),
                      wakes);
  return lost_device;
}

// Ends the victims' leases, so that `preemptor` gets its own quota back.
void Evict(ClusterState& state, const std::vector<Victim>& victims,
           const Tenant& preemptor, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  // A session that loses several workers at once counts as returning once.
  std::set<std::string> returning;
  for (const Victim& victim : victims) {
    Session* const session = state.sessions.Find(victim.session_id);
    const bool returns = session->devices.returns < kMaxReturns ||
                         returning.contains(victim.session_id);
    const bool lost_device = Evict(state, victim, preemptor, returns, wakes);
    if (returns && lost_device && returning.insert(victim.session_id).second) {
      ++session->devices.returns;
    }
  }
  scheduler::NoteLosses(victims, &state.quotas.losses,
                        state.clock->Monotonic());
}

// Returns victims as scheduler::ChooseVictims() does. If taking quota back is
// put off, notes in `pending` why and until when.
std::vector<Victim> ChooseVictims(
    ClusterState& state,
    absl::FunctionRef<std::vector<Victim>(const ReclaimLosses::Allowance&)>
        choose,
    PendingLease* pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Duration now = state.clock->Monotonic();
  scheduler::ChosenVictims chosen =
      scheduler::ChooseVictims(choose, &state.quotas.losses, now);
  if (!chosen.put_off.empty()) {
    pending->put_off = absl::StrCat(
        "time: by what others took back, tenant ", chosen.put_off, " has lost ",
        absl::FormatDuration(state.quotas.losses.Lost(chosen.put_off, now)),
        " of device time in the last minute, of ",
        absl::FormatDuration(state.quotas.losses.limit()), " that it may lose");
    pending->next_reclaim = now + kReclaimRetry;
  }
  return std::move(chosen.victims);
}

// Returns by how many bytes the sessions' counts of contents at the worker
// exceed the contents in use there.
uint64_t SharedContents(const Worker& worker) {
  uint64_t all_contents = 0;
  for (const auto& [lease_id, held] : worker.leases.held) {
    all_contents =
        SaturatingSum(all_contents, held.use.contents().size_bytes());
  }
  uint64_t used_contents = 0;
  if (worker.facts.memory.has_value()) {
    used_contents = worker.facts.memory->content_bytes() -
                    std::min(worker.facts.memory->content_bytes(),
                             worker.facts.memory->idle_content_bytes());
  }
  // Every session that shares a content counts all of it.
  return all_contents - std::min(all_contents, used_contents);
}

}  // namespace

absl::Status TakeQuota(ClusterState& state, const Tenant& tenant,
                       PendingLease* pending, Wakes* wakes) {
  const Amounts asked = LeaseQuota(tenant);
  const auto breach = state.quotas.tree.Check(tenant.name, asked);
  if (!breach.has_value()) return absl::OkStatus();
  std::vector<Victim> victims;
  if (pending->put_off.empty()) {
    victims = ChooseVictims(
        state,
        [&](const ReclaimLosses::Allowance& allowance)
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
              return scheduler::VictimsForQuota(
                  tenant.name, asked,
                  [&](const std::string& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                      state.mu) { return VictimsOf(state, from); },
                  allowance, &state.quotas.tree);
            },
        pending);
  }
  if (victims.empty()) return quota::Exceeded(tenant, *breach);
  Evict(state, victims, tenant, wakes);
  return absl::OkStatus();
}

void TakeRoom(ClusterState& state, MemberId device, const Tenant& tenant,
              const scheduler::Request& request, Session* session,
              Wakes* wakes) {
  PendingLease& pending = session->devices.pending.at(device);
  const absl::Duration now = state.clock->Monotonic();
  if (RoomIsOnItsWay(state, pending) || now < pending.next_reclaim ||
      now < state.queue.next_room_look) {
    return;
  }
  const Amounts asked = scheduler::MemoryOf(LeaseQuota(tenant));
  const scheduler::Fleet& workers = fleet::Fresh(state);
  scheduler::VictimsByWorker by_worker;
  for (const auto& [name, other] : *state.tenants->all()) {
    if (!state.quotas.tree.MayTakeBack(tenant.name, name, asked)) continue;
    for (Victim& victim : VictimsOf(state, name)) {
      std::vector<Victim>& there = by_worker[victim.worker_id];
      there.push_back(std::move(victim));
    }
  }
  const std::vector<Victim> victims = ChooseVictims(
      state,
      [&](const ReclaimLosses::Allowance& allowance)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
            return scheduler::VictimsAtOneWorker(
                tenant.name, asked, request, by_worker, workers,
                state.known.works.factors(),
                [&](const std::string& worker_id)
                    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
                      return SharedContents(*state.workers.Find(worker_id));
                    },
                allowance, &state.quotas.tree);
          },
      &pending);
  // The search looked at all tenants' leases. Waits before the next one, so
  // that searches take no more than a quarter of the time.
  const absl::Duration end = state.clock->Monotonic();
  state.queue.next_room_look = end + 3 * (end - now);
  pending.next_reclaim = end + kReclaimRetry;
  if (victims.empty()) return;
  pending.room = {victims.front().worker_id, {}};
  for (const Victim& victim : victims) {
    pending.room.session_ids.push_back(victim.session_id);
  }
  state.queue.reservation.Keep(pending.ticket, pending.room.worker_id);
  Evict(state, victims, tenant, wakes);
}

bool RoomIsOnItsWay(ClusterState& state, const PendingLease& pending) {
  const Worker* const worker = state.workers.Find(pending.room.worker_id);
  if (worker == nullptr || !worker->usable()) return false;
  return std::any_of(pending.room.session_ids.begin(),
                     pending.room.session_ids.end(),
                     [&](const std::string& session_id) {
                       return worker->ends.drops.Contains(session_id);
                     });
}

}  // namespace djinn::coordinator::reclaim
