#include "scheduler/quota/rate_shares.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace djinn::scheduler {

std::vector<RateShare> ShareRates(absl::Span<const RateDemand> demands) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  std::vector<RateShare> shares(demands.size());
  std::vector<double> wanted(demands.size());
  double pool = 0;
  double weights = 0;
  for (size_t i = 0; i < demands.size(); ++i) {
    const RateDemand& tenant = demands[i];
    shares[i].own = std::min(tenant.demand, tenant.quota.nominal);
    shares[i].lent = std::min(tenant.quota.nominal - shares[i].own,
                              tenant.quota.lending_limit.value_or(kAny));
    wanted[i] = std::min(tenant.demand - shares[i].own,
                         tenant.quota.borrowing_limit.value_or(kAny));
    pool += shares[i].lent;
    weights += tenant.weight;
  }
  // Who wants least for its weight first: it leaves the rest to the others.
  std::vector<size_t> order(demands.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return wanted[a] / demands[a].weight < wanted[b] / demands[b].weight;
  });
  double rest = pool;
  for (const size_t i : order) {
    shares[i].borrowed =
        std::min(wanted[i], rest * demands[i].weight / weights);
    rest -= shares[i].borrowed;
    weights -= demands[i].weight;
  }
  // Lenders give in proportion.
  for (RateShare& share : shares) {
    if (pool > 0) share.lent *= (pool - rest) / pool;
  }
  return shares;
}

}  // namespace djinn::scheduler
