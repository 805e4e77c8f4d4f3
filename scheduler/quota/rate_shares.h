// Shares rates of a resource, such as device-seconds or bytes per second, among
// tenants. Rates are lent and borrowed by the rules of quota_tree.h, and shared
// again whenever demand changes.
//
// Every tenant gets what it wants of its nominal rate. The rest, as far as it
// may be lent, goes to tenants of the same cohort that want more, by weight,
// but to none beyond its borrowing limit or its demand. Cohorts nest by their
// names: rate that no tenant of a cohort wants goes on to its parent, where the
// cohort lends and borrows beside the parent's tenants, by its weight, and
// shares what it gets there inside by the same rule. A cohort therefore lends
// only when no tenant inside wants more; the lent rate equals the borrowed
// rate; no lendable rate is left while a tenant under the same root wants it
// and may borrow it; and a lender that wants its own rate again has it at the
// next sharing.
//
// A cohort may have a rate of its own, which its members borrow. Its limits
// apply to what it lends to, and borrows from, the cohorts around it.
//
// A pure function.
#ifndef SCHEDULER_QUOTA_RATE_SHARES_H_
#define SCHEDULER_QUOTA_RATE_SHARES_H_

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace djinn::scheduler {

// A quota in units of the resource per second.
struct RateQuota {
  double nominal = 0;
  std::optional<double> borrowing_limit;
  std::optional<double> lending_limit;

  friend bool operator==(const RateQuota&, const RateQuota&) = default;
};

struct RateDemand {
  // The cohort, as in TenantQuota; empty for none, without lending or
  // borrowing.
  std::string cohort;
  RateQuota quota;
  double weight = 1;
  // The rate that the tenant would use; may be infinite.
  double demand = std::numeric_limits<double>::infinity();
};

struct CohortRate {
  std::string cohort;
  // Weight beside its siblings, which are tenants and cohorts.
  double weight = 1;
  RateQuota quota;
};

struct RateShare {
  // The part within its nominal rate, and the part beyond it.
  double own = 0;
  double borrowed = 0;
  // The part of its nominal rate that others use.
  double lent = 0;
  // The rate that could be lent under the root of its cohort if nothing were
  // used and cohorts had no limits.
  double lendable = 0;
};

// Returns the shares of all tenants, in the order of `demands`. `cohorts` has
// at most one entry for each cohort; a cohort without one has no rate, no
// limits, and weight 1. The limits of a root cohort have no effect.
std::vector<RateShare> ShareRates(absl::Span<const RateDemand> demands,
                                  absl::Span<const CohortRate> cohorts = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_RATE_SHARES_H_
