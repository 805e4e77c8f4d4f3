#include "scheduler/quota/victims.h"

#include <algorithm>
#include <map>
#include <set>

namespace djinn::scheduler {

void SortByRank(std::vector<Victim>* victims) {
  std::sort(victims->begin(), victims->end(),
            [](const Victim& a, const Victim& b) { return a.rank < b.rank; });
}

Standing StandingOf(const std::vector<Victim>& victims) {
  Standing most = {false, 0};
  for (const Victim& victim : victims) {
    const auto& [spared, priority_class, lost, age] = victim.rank;
    most.first |= spared;
    most.second = std::max(most.second, priority_class);
  }
  return most;
}

std::vector<Victim> VictimsForQuota(
    const std::string& tenant, const Amounts& asked,
    absl::FunctionRef<std::vector<Victim>(const std::string& tenant)>
        victims_of,
    ReclaimLosses::Allowance allowance, QuotaTree* quotas) {
  // `quotas` changes only while victims are tried, so that no tenant loses
  // anything in vain.
  std::map<std::string, std::vector<Victim>> left;
  std::set<std::string> exhausted;
  std::vector<Victim> taken;
  const auto short_of_it = [&] {
    return quotas->Check(tenant, asked).has_value();
  };
  while (short_of_it()) {
    const auto from = quotas->Reclaim(tenant, asked, exhausted);
    if (!from.has_value()) break;
    const auto [of, added] = left.try_emplace(*from);
    std::vector<Victim>& next = of->second;
    if (added) {
      next = victims_of(*from);
      SortByRank(&next);
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
    quotas->Give(taken.back().tenant, taken.back().quota);
  }
  const bool enough = !short_of_it();
  if (enough) {
    // Spares victims that others made unnecessary, the most expensive first.
    std::sort(taken.begin(), taken.end(),
              [](const Victim& a, const Victim& b) { return a.rank > b.rank; });
    std::erase_if(taken, [&](const Victim& victim) {
      quotas->Take(victim.tenant, victim.quota);
      const bool spared = !short_of_it();
      if (!spared) quotas->Give(victim.tenant, victim.quota);
      return spared;
    });
  }
  for (const Victim& victim : taken) quotas->Take(victim.tenant, victim.quota);
  return enough ? taken : std::vector<Victim>();
}

ChosenVictims ChooseVictims(
    absl::FunctionRef<std::vector<Victim>(const ReclaimLosses::Allowance&)>
        choose,
    ReclaimLosses* losses, absl::Duration now) {
  std::vector<Victim> best = choose(ReclaimLosses::Allowance());
  ReclaimLosses::Allowance allowance = losses->ForOne(now);
  std::map<std::string, absl::Duration> lost;
  for (const Victim& victim : best) lost[victim.tenant] += victim.lost;
  std::erase_if(lost, [&](const auto& entry) {
    return allowance.Take(entry.first, entry.second);
  });
  if (lost.empty()) return {std::move(best), ""};
  std::vector<Victim> others = choose(losses->ForOne(now));
  if (!others.empty() && StandingOf(others) <= StandingOf(best)) {
    return {std::move(others), ""};
  }
  for (const auto& [tenant, together] : lost) {
    losses->PutOff(tenant, together, now);
  }
  return {{}, lost.begin()->first};
}

void NoteLosses(const std::vector<Victim>& victims, ReclaimLosses* losses,
                absl::Duration now) {
  std::map<std::string, absl::Duration> lost;
  for (const Victim& victim : victims) lost[victim.tenant] += victim.lost;
  for (const auto& [tenant, together] : lost) {
    losses->Add(tenant, together, now);
  }
}

}  // namespace djinn::scheduler
