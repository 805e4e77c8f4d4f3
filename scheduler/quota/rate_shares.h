// How fast tenants may use a resource, such as device-seconds or bytes per
// second, lent and borrowed as quota_tree.h says of amounts, but shared out
// anew whenever demand changes.
//
// Everybody gets what it wants of its nominal rate. What is left of it, as far
// as it may be lent, goes to those of the same cohort that want more, by
// weight, and to none of them beyond its borrowing limit or its demand. Cohorts
// nest by their names: what a cohort's own do not want goes on to its parent,
// where the cohort itself lends and borrows beside the parent's tenants, by its
// weight; what it gets there is shared out inside likewise. So a cohort is a
// lender only when nobody inside wants more, what is lent is what is borrowed,
// nothing that may be lent is left while anybody under the same root wants it
// and may borrow it, and a lender that wants its own again has it the next
// time.
//
// A cohort may have a rate, too, which is nobody's: whoever is in it borrows
// it. Its limits are of what goes to the cohorts around it, and comes from
// there.
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

// Of the resource, per second.
struct RateQuota {
  double nominal = 0;
  std::optional<double> borrowing_limit;
  std::optional<double> lending_limit;

  friend bool operator==(const RateQuota&, const RateQuota&) = default;
};

struct RateDemand {
  // As TenantQuota's; empty: none, and nothing is lent or borrowed.
  std::string cohort;
  RateQuota quota;
  double weight = 1;
  // What the tenant would use; may be infinite.
  double demand = std::numeric_limits<double>::infinity();
};

struct CohortRate {
  std::string cohort;
  // Beside its siblings, tenants and cohorts.
  double weight = 1;
  RateQuota quota;
};

struct RateShare {
  // Of its nominal rate, and beyond it.
  double own = 0;
  double borrowed = 0;
  // Of its nominal rate, to others.
  double lent = 0;
  // All that could be lent under the root of its cohort, were nothing used and
  // had cohorts no limits.
  double lendable = 0;
};

// Of all tenants, in their order. `cohorts` has at most one entry for each; a
// cohort without one has no rate, no limits, and weight 1. The limits of a
// cohort at the root mean nothing.
std::vector<RateShare> ShareRates(absl::Span<const RateDemand> demands,
                                  absl::Span<const CohortRate> cohorts = {});

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_RATE_SHARES_H_
