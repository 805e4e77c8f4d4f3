// How much of a resource each tenant may be granted now, where its quota is a
// rate: device-seconds, or bytes, per second.
//
// A tenant's allowance grows with time at the rate that its cohort leaves it
// (scheduler/quota/rate_shares.h) and shrinks by what its leases are granted.
// It keeps the growth of kBurst at most: over any time T a tenant is granted no
// more than its rate times T + kBurst, and what it did not use long ago is
// gone. Demand is what was used lately, unless a lease waits for credit: then
// the tenant wants all it can get.
//
// Not thread-safe; reads no clock.
#ifndef SCHEDULER_QUOTA_RATE_BUDGET_H_
#define SCHEDULER_QUOTA_RATE_BUDGET_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/quota/rate_shares.h"

namespace djinn::scheduler {

class RateBudget {
 public:
  static constexpr absl::Duration kBurst = absl::Seconds(10);
  // Rates are shared out anew so often.
  static constexpr absl::Duration kInterval = absl::Milliseconds(100);

  // What one lease is granted of device time at a time, in seconds.
  static constexpr double kMinSeconds = 0.02;
  static constexpr double kMaxSeconds = 60;

  // What one lease is granted at a time: the least, and the most, of the unit.
  RateBudget(double min_slice, double max_slice)
      : min_slice_(min_slice), max_slice_(max_slice) {}

  struct Tenant {
    std::string name;
    // Empty: none.
    std::string cohort;
    double weight = 1;
    RateQuota quota;
  };

  // Replaces the tenants and their cohorts; those that stay keep their
  // allowance, new ones begin with a full one.
  void Configure(std::vector<Tenant> tenants,
                 std::vector<CohortRate> cohorts = {});

  // No tenant has such a quota.
  bool empty() const { return states_.empty(); }

  // As Advance() would share out now if the tenant had this quota, by name.
  // What a tenant without one uses is not known: as if it wanted all.
  std::map<std::string, RateShare> Try(const Tenant& changed,
                                       absl::Duration now) const;
  // What it would have if it wanted all it may have.
  RateShare TryAll(const Tenant& changed, absl::Duration now) const;

  // A lease of the tenant waits for credit.
  void NoteWaiting(const std::string& tenant, absl::Duration now);
  // Whether it is time to Advance().
  bool Due(absl::Duration now) const { return now - last_ >= kInterval; }
  // Shares out what has become free since the last time. `used`: what each
  // tenant has used in all.
  void Advance(absl::Duration now, const std::map<std::string, double>& used);

  // Null for a tenant without such a quota. What is granted of it is to be
  // subtracted; what comes back is to be added, up to Most().
  double* Allowance(const std::string& tenant);
  // What the allowance grows to; 0 for a tenant without such a quota.
  double Most(const std::string& tenant) const;
  // What one lease is granted at a time.
  double Slice(const std::string& tenant) const;
  // As shared out last; zeros for a tenant without such a quota.
  RateShare ShareOf(const std::string& tenant) const;
  // What it borrows of all that could be lent under its root, over its weight.
  double WeightedShareOf(const std::string& tenant) const;
  // A second, lately.
  double RateOf(const std::string& tenant) const;

 private:
  struct State {
    Tenant tenant;
    double allowance = 0;
    double used = 0;
    bool known = false;
    double rate = 0;
    absl::Duration waited = -absl::InfiniteDuration();
    RateShare share;
  };
  double Full(const State& state) const;
  std::map<std::string, RateShare> Try(const Tenant& changed, bool wants_all,
                                       absl::Duration now) const;
  static RateDemand DemandOf(const State& state, absl::Duration now);

  const double min_slice_;
  const double max_slice_;
  std::map<std::string, State> states_;
  std::vector<CohortRate> cohorts_;
  absl::Duration last_ = -absl::InfiniteDuration();
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_QUOTA_RATE_BUDGET_H_
