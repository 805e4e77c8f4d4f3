#include "scheduler/quota/room.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/time/time.h"
#include "common/base/saturating.h"
#include "scheduler/placement/filters.h"
#include "scheduler/placement/terms.h"

namespace djinn::scheduler {
namespace {

// The price of a reclaim: the standing of its most protected victims, their
// number, and the device time that is lost.
using Price = std::tuple<Standing, size_t, absl::Duration>;

Price PriceOf(const std::vector<Victim>& victims) {
  absl::Duration lost;
  for (const Victim& victim : victims) lost += victim.lost;
  return {StandingOf(victims), victims.size(), lost};
}

// Sorts the largest first among victims of equal standing.
void SortBySize(std::vector<Victim>* victims) {
  std::stable_sort(victims->begin(), victims->end(),
                   [](const Victim& a, const Victim& b) {
                     const auto rank = [](const Victim& victim) {
                       return std::make_tuple(
                           std::get<0>(victim.rank), std::get<1>(victim.rank),
                           ~SaturatingSum(victim.bytes, victim.content_bytes));
                     };
                     return rank(a) < rank(b);
                   });
}

}  // namespace

Amounts MemoryOf(Amounts asked) {
  asked[static_cast<size_t>(Resource::kOutstandingMessages)] = 0;
  return asked;
}

std::vector<Victim> VictimsForRoom(const std::string& lender,
                                   const Amounts& asked,
                                   const std::vector<Victim>& in_order,
                                   uint64_t shared, uint64_t needed,
                                   ReclaimLosses::Allowance allowance,
                                   QuotaTree* quotas) {
  // Contents that the victims share with remaining sessions do not become free.
  absl::uint128 bytes = 0, contents = 0;
  const auto enough = [&] {
    return bytes + (contents - std::min<absl::uint128>(contents, shared)) >=
           needed;
  };
  std::vector<Victim> taken;
  for (const Victim& victim : in_order) {
    // A tenant never gives back more than it borrows.
    if (!quotas->MayTakeBack(lender, victim.tenant, asked) ||
        !allowance.Take(victim.tenant, victim.lost)) {
      continue;
    }
    quotas->Give(victim.tenant, victim.quota);
    taken.push_back(victim);
    bytes += victim.bytes;
    contents += victim.content_bytes;
    if (enough()) break;
  }
  for (const Victim& victim : taken) quotas->Take(victim.tenant, victim.quota);
  if (!enough()) return {};
  // Spares victims that others made unnecessary, the most expensive first.
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

std::vector<Victim> VictimsAtOneWorker(
    const std::string& lender, const Amounts& asked, const Request& request,
    const VictimsByWorker& by_worker, const Fleet& fleet,
    const semantics::CostFactors& factors,
    absl::FunctionRef<uint64_t(const std::string& worker_id)> shared_contents,
    const ReclaimLosses::Allowance& allowance, QuotaTree* quotas) {
  const auto own =
      static_cast<uint64_t>(quotas->MemoryWithQuota(lender, asked));
  std::vector<Victim> best;
  for (const auto& [worker_id, there] : by_worker) {
    const Fleet::Member* const member = fleet.Find(worker_id);
    if (member == nullptr || request.unreached.contains(worker_id)) continue;
    uint64_t held_bytes = 0;
    for (const Request::State& piece : request.state) {
      if (member->held.contains(piece.key)) held_bytes += piece.bytes;
    }
    WorkerFacts facts = member->facts;
    const Terms terms = ComputeTerms(request, facts, held_bytes, factors);
    const uint64_t available = std::exchange(facts.available_bytes, UINT64_MAX);
    if (terms.missing_bytes <= available ||
        terms.missing_bytes > facts.memory_bytes ||
        Filter(request, facts, terms).has_value()) {
      continue;
    }
    const uint64_t needed = terms.missing_bytes - available;
    // Taking more would cost others what they did not borrow from this lender.
    if (needed > own) continue;
    const uint64_t shared = shared_contents(worker_id);
    std::vector<Victim> victims = there;
    const auto consider = [&] {
      std::vector<Victim> found = VictimsForRoom(lender, asked, victims, shared,
                                                 needed, allowance, quotas);
      if (!found.empty() && (best.empty() || PriceOf(found) < PriceOf(best))) {
        best = std::move(found);
      }
    };
    // Tries the cheapest sessions first, and the largest first.
    SortByRank(&victims);
    consider();
    SortBySize(&victims);
    consider();
  }
  return best;
}

}  // namespace djinn::scheduler
