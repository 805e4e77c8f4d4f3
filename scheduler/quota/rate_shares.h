// How fast tenants of a cohort may use a resource, such as device-seconds or
// bytes per second, lent and borrowed as quota_tree.h says of amounts, but
// shared out anew whenever demand changes.
//
// Everybody gets what it wants of its nominal rate. What is left of the nominal
// rates, as far as it may be lent, goes to those that want more, by weight, and
// to none of them beyond its borrowing limit or its demand. So what is lent is
// what is borrowed, and a lender that wants its own again has it the next time.
//
// A pure function.
#ifndef SCHEDULER_QUOTA_RATE_SHARES_H_
#define SCHEDULER_QUOTA_RATE_SHARES_H_

#include <limits>
#include <optional>
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
  RateQuota quota;
  double weight = 1;
  // What the tenant would use; may be infinite.
  double demand = std::numeric_limits<double>::infinity();
};

struct RateShare {
  // Of its nominal rate, and beyond it.
  double own = 0;
  double borrowed = 0;
  // Of its nominal rate, to others.
  double lent = 0;
};

// Of the tenants of one cohort, in their order.
std::vector<RateShare> ShareRates(absl::Span<const RateDemand> demands);

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_RATE_SHARES_H_
