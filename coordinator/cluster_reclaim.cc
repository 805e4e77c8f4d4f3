// Who gives back what is borrowed: quota, and the room at a worker that goes
// with it.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/error.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "common/saturating.h"
#include "coordinator/cluster.h"
#include "scheduler/placement/filters.h"
#include "scheduler/placement/terms.h"

namespace djinn::coordinator {
namespace {

using scheduler::Amounts;
using scheduler::ReclaimLosses;
using scheduler::Resource;

// After looking in vain for what could be taken back, for one that waits:
// others have their turn meanwhile.
constexpr absl::Duration kReclaimRetry = absl::Seconds(1);

// How often a session goes before others of its tenant and class because it
// lost a worker: they would wait for ever behind one that loses it each time.
constexpr int kMaxReturns = 3;

// Of what a lease takes, what room at a worker has to do with.
Amounts MemoryOf(Amounts asked) {
  asked[static_cast<size_t>(Resource::kOutstandingMessages)] = 0;
  return asked;
}

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

std::vector<Cluster::Victim> Cluster::VictimsOf(const std::string& tenant) {
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
  std::sort(victims.begin(), victims.end(),
            [](const Victim& a, const Victim& b) { return a.rank < b.rank; });
  return victims;
}

absl::Duration Cluster::LostWith(const Lease& lease) const {
  const CreditLedger::Account* const account = ledger_.Find(lease.id);
  return account == nullptr ? absl::ZeroDuration()
                            : account->billed.device_time;
}

void Cluster::Evict(const std::vector<Victim>& victims, const Tenant& preemptor,
                    Wakes* wakes) {
  std::map<std::string, absl::Duration> lost;
  // A session that loses several workers at once returns once.
  std::set<std::string> returning;
  for (const Victim& victim : victims) {
    lost[victim.tenant] += victim.lost;
    Session* const session = sessions_.Find(victim.session_id);
    const bool returns =
        session->returns < kMaxReturns || returning.contains(victim.session_id);
    const bool lost_device = Evict(victim, preemptor, returns, wakes);
    if (returns && lost_device && returning.insert(victim.session_id).second) {
      ++session->returns;
    }
  }
  for (const auto& [tenant, together] : lost) {
    losses_.Add(tenant, together, clock_->Monotonic());
  }
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
  // A worker drops sessions, not leases.
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

Cluster::Standing Cluster::StandingOf(const std::vector<Victim>& victims) {
  Standing most = {false, v1::PRIORITY_CLASS_UNSPECIFIED};
  for (const Victim& victim : victims) {
    const auto& [spared, priority_class, lost, age] = victim.rank;
    most.first |= spared;
    most.second = std::max(most.second, priority_class);
  }
  return most;
}

std::vector<Cluster::Victim> Cluster::ChooseVictims(
    absl::FunctionRef<std::vector<Victim>(const ReclaimLosses::Allowance&)>
        choose,
    PendingLease* pending) {
  const absl::Duration now = clock_->Monotonic();
  std::vector<Victim> best = choose(ReclaimLosses::Allowance());
  ReclaimLosses::Allowance allowance = losses_.ForOne(now);
  std::map<std::string, absl::Duration> lost;
  for (const Victim& victim : best) lost[victim.tenant] += victim.lost;
  std::erase_if(lost, [&](const auto& entry) {
    return allowance.Take(entry.first, entry.second);
  });
  if (lost.empty()) return best;
  std::vector<Victim> others = choose(losses_.ForOne(now));
  if (!others.empty() && StandingOf(others) <= StandingOf(best)) return others;
  for (const auto& [tenant, together] : lost) {
    losses_.PutOff(tenant, together, now);
  }
  const std::string& tenant = lost.begin()->first;
  pending->put_off = absl::StrCat(
      "time: by what others took back, tenant ", tenant, " has lost ",
      absl::FormatDuration(losses_.Lost(tenant, now)),
      " of device time in the last minute, of ",
      absl::FormatDuration(losses_.limit()), " that it may lose");
  pending->next_reclaim = now + kReclaimRetry;
  return {};
}

std::vector<Cluster::Victim> Cluster::VictimsForQuota(
    const Tenant& tenant, ReclaimLosses::Allowance allowance) {
  const Amounts asked = LeaseQuota(tenant);
  // Tried out: in vain nobody is to lose anything.
  std::map<std::string, std::vector<Victim>> left;
  std::set<std::string> exhausted;
  std::vector<Victim> taken;
  const auto short_of_it = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return quotas_.Check(tenant.name, asked).has_value();
  };
  while (short_of_it()) {
    const auto from = quotas_.Reclaim(tenant.name, asked, exhausted);
    if (!from.has_value()) break;
    const auto [of, added] = left.try_emplace(*from);
    std::vector<Victim>& next = of->second;
    if (added) {
      next = VictimsOf(*from);
      std::reverse(next.begin(), next.end());
    }
    while (!next.empty() && !allowance.Take(*from, next.back().lost)) {
      next.pop_back();
    }
    if (next.empty()) {
      exhausted.insert(*from);
      continue;
    }
    taken.push_back(std::move(next.back()));
    next.pop_back();
    quotas_.Give(taken.back().tenant, taken.back().quota);
  }
  const bool enough = !short_of_it();
  if (enough) {
    // Those that others made up for stay, the dearest first.
    std::sort(taken.begin(), taken.end(),
              [](const Victim& a, const Victim& b) { return a.rank > b.rank; });
    std::erase_if(taken,
                  [&](const Victim& victim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
                    quotas_.Take(victim.tenant, victim.quota);
                    const bool spared = !short_of_it();
                    if (!spared) quotas_.Give(victim.tenant, victim.quota);
                    return spared;
                  });
  }
  for (const Victim& victim : taken) quotas_.Take(victim.tenant, victim.quota);
  return enough ? taken : std::vector<Victim>();
}

absl::Status Cluster::ReclaimQuota(const Tenant& tenant, PendingLease* pending,
                                   Wakes* wakes) {
  const auto breach = quotas_.Check(tenant.name, LeaseQuota(tenant));
  if (!breach.has_value()) return absl::OkStatus();
  std::vector<Victim> victims;
  if (pending->put_off.empty()) {
    victims = ChooseVictims(
        [&](const ReclaimLosses::Allowance& allowance)
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
              return VictimsForQuota(tenant, allowance);
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

std::vector<Cluster::Victim> Cluster::VictimsForRoom(
    const Tenant& lender, const std::vector<Victim>& in_order, uint64_t shared,
    uint64_t needed, ReclaimLosses::Allowance allowance) {
  const Amounts asked = MemoryOf(LeaseQuota(lender));
  // Of what these share with sessions that stay nothing becomes free.
  absl::uint128 bytes = 0, contents = 0;
  const auto enough = [&] {
    return bytes + (contents - std::min<absl::uint128>(contents, shared)) >=
           needed;
  };
  std::vector<Victim> taken;
  for (const Victim& victim : in_order) {
    // Nobody gives back more than it borrows.
    if (!quotas_.MayTakeBack(lender.name, victim.tenant, asked) ||
        !allowance.Take(victim.tenant, victim.lost)) {
      continue;
    }
    quotas_.Give(victim.tenant, victim.quota);
    taken.push_back(victim);
    bytes += victim.bytes;
    contents += victim.content_bytes;
    if (enough()) break;
  }
  for (const Victim& victim : taken) quotas_.Take(victim.tenant, victim.quota);
  if (!enough()) return {};
  // Those that others made up for stay, the dearest first.
  std::sort(taken.begin(), taken.end(),
            [](const Victim& a, const Victim& b) { return a.rank > b.rank; });
  std::erase_if(taken, [&](const Victim& victim) {
    bytes -= victim.bytes;
    contents -= victim.content_bytes;
    if (enough()) return true;
    bytes += victim.bytes;
    contents += victim.content_bytes;
    return false;
  });
  return taken;
}

std::vector<Cluster::Victim> Cluster::VictimsAtOneWorker(
    const Tenant& tenant, const scheduler::Request& request,
    const std::map<std::string, std::vector<Victim>>& by_worker,
    const ReclaimLosses::Allowance& allowance) {
  // Those that lose most: what they are, how many, and their device time.
  using Price = std::tuple<Standing, size_t, absl::Duration>;
  const auto price_of = [](const std::vector<Victim>& victims) {
    absl::Duration lost;
    for (const Victim& victim : victims) lost += victim.lost;
    return Price(StandingOf(victims), victims.size(), lost);
  };
  std::vector<Victim> best;
  for (const auto& [worker_id, there] : by_worker) {
    const scheduler::Fleet::Member* const member = fleet_.Find(worker_id);
    if (member == nullptr || request.unreached.contains(worker_id)) continue;
    uint64_t held_bytes = 0;
    for (const scheduler::Request::State& piece : request.state) {
      if (member->held.contains(piece.key)) held_bytes += piece.bytes;
    }
    scheduler::WorkerFacts facts = member->facts;
    const scheduler::Terms terms =
        scheduler::ComputeTerms(request, facts, held_bytes, works_.factors());
    const uint64_t available = std::exchange(facts.available_bytes, UINT64_MAX);
    if (terms.missing_bytes <= available ||
        terms.missing_bytes > facts.memory_bytes ||
        scheduler::Filter(request, facts, terms).has_value()) {
      continue;
    }
    const uint64_t needed = terms.missing_bytes - available;
    const uint64_t shared = SharedContents(*workers_.Find(worker_id));
    std::vector<Victim> victims = there;
    std::sort(victims.begin(), victims.end(),
              [](const Victim& a, const Victim& b) { return a.rank < b.rank; });
    const auto consider = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      std::vector<Victim> found =
          VictimsForRoom(tenant, victims, shared, needed, allowance);
      if (!found.empty() &&
          (best.empty() || price_of(found) < price_of(best))) {
        best = std::move(found);
      }
    };
    // Who loses least, and who holds most, of those that give way alike.
    consider();
    std::stable_sort(
        victims.begin(), victims.end(), [](const Victim& a, const Victim& b) {
          const auto rank = [](const Victim& victim) {
            return std::make_tuple(
                std::get<0>(victim.rank), std::get<1>(victim.rank),
                ~SaturatingSum(victim.bytes, victim.content_bytes));
          };
          return rank(a) < rank(b);
        });
    consider();
  }
  return best;
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
  const Amounts asked = MemoryOf(LeaseQuota(tenant));
  std::map<std::string, std::vector<Victim>> by_worker;
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
            return VictimsAtOneWorker(tenant, request, by_worker, allowance);
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
